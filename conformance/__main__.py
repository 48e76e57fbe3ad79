"""The start of the program `bullmq-conformance`, also as `python -m conformance`.

A Ctrl-C during the imports has nothing to clean up, but Python would print a traceback of the import. So until the
program handles signals itself, each of them ends it at once, with the system's own exit status: a shell sees 130, 143
or 129.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # what was ignored from the start stays so
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from conformance.cli.main import main

if __name__ == "__main__":
    main()
