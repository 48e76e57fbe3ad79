"""Every operation of the driver protocol, by role: a typed request and the type of its answer."""

import msgspec

from conformance.driver.ops import flow, job, lifecycle, queue, worker
from conformance.driver.ops.base import REGISTRY, Op

__all__ = ["REGISTRY", "Op", "flow", "job", "lifecycle", "queue", "worker"]


def _build_all() -> None:
    """Let msgspec build what it knows of a type now, while no other thread can be about it.

    It builds that at the type's first use, and kills the process (SIGSEGV, msgspec 0.22.0) when a second thread uses a
    type that is half built. Drivers' answers and events are read in a thread per driver.
    """
    for operation in REGISTRY.values():
        msgspec.json.Decoder(operation)
        msgspec.json.Decoder(operation.answer)
    for arguments in lifecycle.EVENT_ARGS.values():
        msgspec.json.Decoder(arguments)


_build_all()
