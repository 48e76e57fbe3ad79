"""The kit's own version."""

from importlib.metadata import PackageNotFoundError, version

try:
    KIT_VERSION = version("bullmq-conformance")
except PackageNotFoundError:  # run from a folder that was never installed
    KIT_VERSION = "0+unknown"
