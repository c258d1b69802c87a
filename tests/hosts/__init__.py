"""The program on other releases of Debian, with their own Python, OpenSSL and trust store: tests/README.md."""
