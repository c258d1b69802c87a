"""What a hostile server, proxy, resolver or operating system can do to the program, and what must come of it.

The promise, proved for every case by `cases.check_manners`: the program ends by itself, with the
specified exit code, in at most 100 MiB, without a traceback, with nothing raw from its peer on a stream, and
with everything reported that it had measured.
"""
