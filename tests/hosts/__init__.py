"""The program on other releases of Debian, with their own Python and OpenSSL: see tests/README.md."""
