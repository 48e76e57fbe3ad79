"""Every operation of the driver protocol, by role: a typed request and the type of its answer."""

from conformance.driver.ops import events, flow, job, lifecycle, queue, worker
from conformance.driver.ops.base import REGISTRY, Op

__all__ = ["REGISTRY", "Op", "events", "flow", "job", "lifecycle", "queue", "worker"]
