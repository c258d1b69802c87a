"""The program where its users are: other releases of Debian, with their own Python, OpenSSL and trust store.

`build_roots.sh FOLDER` makes the roots, `enter_root.sh` runs a program in one. The servers run outside, on
the loopback that both share. This tries both forms of the program in all roots:

    HTTPHASES_ROOTS=FOLDER .venv/bin/pytest -q -n auto tests/hosts

`-k "sid and socks5"` selects. Without HTTPHASES_ROOTS there is nothing to collect here. The archive is the
one that HTTPHASES_PYZ names, else dist/httphases.pyz; tool.py gets the optional packages out of it.
"""
