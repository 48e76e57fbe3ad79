"""`python -m conformance` is the program `bullmq-conformance`."""

from conformance.cli.main import main

if __name__ == "__main__":
    main()
