"""Differences between the versions of the client that this driver supports: 2.16.1 and later.

An operation whose name a version does not have yet is not declared. Older versions, from 1.13 on, work well enough to
prove the bugs that they had.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from inspect import signature
from typing import Any

import bullmq
from bullmq import Queue, Worker, custom_errors

VERSION = version("bullmq")
"""Version of the installed package; `bullmq.__version__` was not updated in some releases."""

TARGETS = {"3.4.4": "6.4.0"}
"""The BullMQ whose Lua scripts, byte for byte, are in the wheel of a version, if known."""


class MissingError(Exception):
    """Placeholder for an error class that this version does not have; it is never raised."""


def error_class(name: str) -> type[Exception]:
    """The client's error class of this name."""
    found = getattr(bullmq, name, None) or getattr(custom_errors, name, MissingError)
    return found if isinstance(found, type) else MissingError


def has(owner: Any, method: str) -> bool:
    """Whether a class has the method."""
    return callable(getattr(owner, method, None))


def backend_of(owner: Any) -> Any:
    """The object that runs the scripts of a Queue, Worker or FlowProducer: `backend` from 3.0 on, `scripts` before."""
    return owner.backend if hasattr(owner, "backend") else owner.scripts


def backend_class() -> Any:
    """The class behind `backend_of`, to see which operations it has."""
    try:
        return import_module("bullmq.backend").Backend
    except ImportError:
        return import_module("bullmq.scripts").Scripts


def make_queue(name: str, options: dict[str, Any]) -> Queue:
    """Return the queue; before version 2 its connection was an argument of its own."""
    if "redisOpts" in signature(Queue.__init__).parameters:
        return Queue(name, options["connection"], options)
    return Queue(name, options)


CLAIMS_BY_BLOCKING = "job_id" in signature(Worker.moveToActive).parameters
"""Whether `Worker.getNextJob` always blocks first, as before version 2."""


async def wait_until_ready(owner: Any) -> None:
    """Wait until the object is connected."""
    backend = getattr(owner, "backend", None)
    if hasattr(backend, "waitUntilReady"):
        await backend.waitUntilReady()
    else:
        await owner.client.ping()
