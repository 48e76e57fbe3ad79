"""The program `bullmq-conformance`, also as `python -m conformance`: where both begin.

A Ctrl-C before anything has begun has nothing to clean up. Python would print a traceback for it in whatever is being
imported just then; so until the program heeds signals itself, each of them ends it at once, as the system does it: a
shell sees 130, 143 or 129.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # what was ignored from the start stays so
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from conformance.cli.main import main

if __name__ == "__main__":
    main()
