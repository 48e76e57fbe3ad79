"""The steps of a feature: calls of roles instead of clients, so that each role can be given to either version. Pure.

A step is one line of a replay file. Jobs have names that are unique within a feature; `$NAME` in an argument of a call
is the id of that job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

MAIN = "q"
"""The queue of all steps."""


class Ask(msgspec.Struct, frozen=True, tag_field="do", tag="call", omit_defaults=True):
    """One operation of the driver protocol, on the role's own Queue or FlowProducer."""

    role: str
    op: str
    args: dict[str, Any] = {}


class Claim(msgspec.Struct, frozen=True, tag_field="do", tag="claim"):
    """The role asks for a job, and holds the one that it gets."""

    role: str


class Finish(msgspec.Struct, frozen=True, tag_field="do", tag="finish", omit_defaults=True):
    """The role ends the job that it holds; nothing happens if it holds none. `fetch_next`: it takes the next one."""

    role: str
    outcome: Literal["complete", "fail", "unrecoverable", "delay", "wait", "children"] = "complete"
    fetch_next: bool = False
    ms: int = 0


class Vanish(msgspec.Struct, frozen=True, tag_field="do", tag="vanish"):
    """The role goes away with the job that it holds: its lock expires, and it ends nothing."""

    role: str


class StalledCheck(msgspec.Struct, frozen=True, tag_field="do", tag="stalled-check"):
    """The role makes one stalled check."""

    role: str


class Pass(msgspec.Struct, frozen=True, tag_field="do", tag="clock"):
    """Time passes (ms): the clocks of both versions, and times to live in Redis."""

    ms: int


class WorkUntilIdle(msgspec.Struct, frozen=True, tag_field="do", tag="drain", omit_defaults=True):
    """These roles take and end in turns what they get, while minutes pass."""

    roles: list[str]
    outcome: Literal["complete", "fail"] = "complete"


class Loop(msgspec.Struct, frozen=True, tag_field="do", tag="loop", omit_defaults=True):
    """The role starts a worker with its own loop, which completes every job. Time runs from now on."""

    role: str
    options: dict[str, Any] = {}


class Listen(msgspec.Struct, frozen=True, tag_field="do", tag="listen"):
    """The role starts an event reader."""

    role: str


class Await(msgspec.Struct, frozen=True, tag_field="do", tag="await"):
    """Wait until this number of jobs are finished, or `longest_ms` have passed."""

    finished: int
    longest_ms: int = 12_000


class Hear(msgspec.Struct, frozen=True, tag_field="do", tag="hear"):
    """Wait until the event reader of the role delivers this event."""

    role: str
    event: str
    longest_ms: int = 6_000


Step = Ask | Claim | Finish | Vanish | StalledCheck | Pass | WorkUntilIdle | Loop | Listen | Await | Hear

_ADDING = frozenset({"queue.add", "queue.addBulk", "flow.add", "queue.upsertJobScheduler"})


def step_text(step: Step) -> str:
    """A step in one line, for people."""
    fields = msgspec.to_builtins(step)
    doing, role = fields.pop("do"), fields.pop("role", "")
    name = fields.pop("op", doing)
    arguments = fields.pop("args", {}) | fields
    listed = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in arguments.items())
    return f"{role + ': ' if role else ''}{name}{f'({listed})' if listed else ''}"


def roles_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """The roles, in the order in which they first act."""
    named = (role for step in steps for role in (step.roles if isinstance(step, WorkUntilIdle) else [_role(step)]))
    return tuple(dict.fromkeys(role for role in named if role))


def _role(step: Step) -> str:
    return "" if isinstance(step, Pass | Await) else str(getattr(step, "role", ""))


def adders(steps: Iterable[Step]) -> dict[str, str]:
    """The role that adds each job, by the job's name; the first one, if several add it."""
    found: dict[str, str] = {}
    for step in steps:
        if isinstance(step, Ask) and step.op in _ADDING:
            for name in _names_in(step.args):
                found.setdefault(name, step.role)
    return found


def _names_in(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"]
        yield from (
            name for key, inner in value.items() if key in {"jobs", "flow", "children"} for name in _names_in(inner)
        )
    elif isinstance(value, list):
        yield from (name for inner in value for name in _names_in(inner))
