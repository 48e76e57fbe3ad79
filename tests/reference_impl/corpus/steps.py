"""A case of the corpus as data: its name, and steps as operations of the driver protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.observe.canonical_rules import CanonicalContext

PREFIX = "<prefix>"
"""Placeholder for a client's key prefix in arguments, answers and commands."""


@dataclass(frozen=True)
class DriverCall:
    """An operation of the driver protocol on a handle."""

    op: str
    handle: str
    args: dict[str, Any]


@dataclass(frozen=True)
class ClockStep:
    """Advance both clocks by this number of ms."""

    ms: int


@dataclass(frozen=True)
class EventWait:
    """Wait for the next event of one of these names at a handle; its arguments are compared like an answer."""

    handle: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class RestWait:
    """Wait until `workers` workers are idle and `active` jobs of this queue are active."""

    workers: int
    active: int
    queue: str


@dataclass(frozen=True)
class ConnectionWait:
    """Wait until Redis lists this number of named worker connections, because it notices a closed one late."""

    workers: int


@dataclass(frozen=True)
class RedisCommand:
    """A command that the test itself sends, past both clients: a lost key, an expired lock, a foreign writer."""

    words: tuple[str | int, ...]


Step = DriverCall | ClockStep | EventWait | RestWait | ConnectionWait | RedisCommand


@dataclass(frozen=True)
class CorpusCase:
    """One row of the corpus. `context`: how long the case makes keys live, for the rules about times to live."""

    name: str
    steps: tuple[Step, ...]
    context: CanonicalContext = field(default_factory=CanonicalContext)


def case(name: str, *steps: Step, **lifetimes: int) -> CorpusCase:
    """Make a row; `lifetimes` are fields of `Context` (ms)."""
    return CorpusCase(name, steps, CanonicalContext(**lifetimes))


def on(handle: str, op: str, **args: Any) -> DriverCall:
    """An operation on a handle named here."""
    return DriverCall(op, handle, args)


def do(op: str, **args: Any) -> DriverCall:
    """An operation on the only handle of its kind: `q` the queue, `w` the worker, `f` the flow producer."""
    area = op.partition(".")[0]
    return DriverCall(op, {"worker": "w", "resolve": "w", "flow": "f"}.get(area, "q"), args)


def queue(handle: str = "q", *, name: str | None = None, **options: Any) -> DriverCall:
    """Open a queue, called like its handle unless named."""
    return _open(handle, "queue", handle if name is None else name, options=options)


def worker(handle: str = "w", *, of: str = "q", **options: Any) -> DriverCall:
    """Open a manual worker."""
    return _open(handle, "worker", of, processor="manual", options=options)


def running(processor: str, handle: str = "w", *, of: str = "q", given: Any = None, **options: Any) -> DriverCall:
    """Open a worker that runs its own loop; `given` are the arguments of its processor."""
    return _open(handle, "worker", of, processor=processor, processor_args=given or {}, options=options)


def events(handle: str = "e", *, of: str = "q", **options: Any) -> DriverCall:
    """Open a reader of the event stream."""
    return _open(handle, "events", of, options=options)


def flows(handle: str = "f", **options: Any) -> DriverCall:
    return _open(handle, "flow", "", options=options)


def close(handle: str, *, force: bool = False) -> DriverCall:
    return DriverCall("close", handle, {"force": force})


def add(name: str = "job", data: str = "{}", **opts: Any) -> DriverCall:
    """Queue.add on `q`; keywords are BullMQ's job options."""
    return do("queue.add", name=name, data_raw=data, opts=opts)


def add_bulk(*jobs: dict[str, Any]) -> DriverCall:
    """Queue.addBulk on `q` of what `one` makes."""
    return do("queue.addBulk", jobs=list(jobs))


def one(name: str = "job", data: str = "{}", **opts: Any) -> dict[str, Any]:
    """One job of a bulk."""
    return {"name": name, "data_raw": data, "opts": opts}


def take(token: str = "t", *, at: str = "w") -> DriverCall:
    """A manual worker claims the next job."""
    return on(at, "worker.getNextJob", token=token)


def complete(job: str, value: str = "null", *, token: str = "t", fetch: bool = False, at: str = "w") -> DriverCall:
    """A manual worker completes a job, and fetches the next one with `fetch`."""
    return on(at, "worker.moveToCompleted", job=job, token=token, value_raw=value, fetch_next=fetch)


def fail(job: str, message: str = "no", *, token: str = "t", at: str = "w", **more: Any) -> DriverCall:
    """A manual worker fails a job; `more` are `unrecoverable` and `fetch_next`."""
    return on(at, "worker.moveToFailed", job=job, token=token, message=message, **more)


def node(name: str, of: str = "q", *children: dict[str, Any], data: str = "{}", **opts: Any) -> dict[str, Any]:
    return {"name": name, "queue": of, "data_raw": data, "opts": opts, "children": list(children)}


def tick(ms: int) -> ClockStep:
    """Advance both clocks."""
    return ClockStep(ms)


def wait(*names: str, at: str = "w") -> EventWait:
    return EventWait(at, names)


def rest(workers: int = 1, *, active: int = 0, of: str = "q") -> RestWait:
    """Wait until the workers have no jobs left except those of processor `ask`."""
    return RestWait(workers, active, of)


def connected(workers: int) -> ConnectionWait:
    """Wait until Redis lists this number of workers under the prefix."""
    return ConnectionWait(workers)


def redis(*words: str | int) -> RedisCommand:
    """Send a command to Redis that neither client sends."""
    return RedisCommand(words)


def _open(handle: str, role: str, name: str, **more: Any) -> DriverCall:
    return DriverCall("open", handle, {"role": role, "queue": name, "prefix": PREFIX, **more})
