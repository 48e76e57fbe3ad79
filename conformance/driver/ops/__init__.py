"""Every operation of the driver protocol, by role: a typed request and the type of its answer."""

import msgspec

from conformance.driver.ops import flow, job, library, lifecycle, queue, relay, worker
from conformance.driver.ops.base import REGISTRY, Op

__all__ = ["REGISTRY", "Op", "flow", "job", "library", "lifecycle", "queue", "relay", "worker"]


def _build_all() -> None:
    """Make msgspec build its data of each type now, while there is only one thread.

    It builds them at the first use of a type, and the process crashes (SIGSEGV, msgspec 0.22.0) if a second thread uses
    a type that is half built. Each driver has its own thread that reads answers and events.
    """
    for operation in REGISTRY.values():
        msgspec.json.Decoder(operation)
        msgspec.json.Decoder(operation.answer)
    for arguments in lifecycle.EVENT_ARGS.values():
        msgspec.json.Decoder(arguments)


_build_all()
