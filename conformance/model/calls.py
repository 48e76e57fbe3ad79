"""Outputs of the model and what its handles remember: predictions, and the reasons for failed calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from conformance.driver.errors import DriverErrorCode as DriverCode
from conformance.observe.tables import Event
from conformance.protocol.scripts import DRIVER_CODES, ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The answer of a call, and the entries that it appends to the event streams.

    `value`: the answer as plain dicts and lists, None where the call fails. `code`: the driver's error code, None where
    it succeeds. `determined`: False where the outcome depends on the order in which Redis hands out the members of a
    set, which is unpredictable; strategies leave such calls out.
    """

    op: str
    status: Literal["ok", "fail"]
    value: Mapping[str, Any] | None = None
    code: str | None = None
    events: tuple[Event, ...] = ()
    determined: bool = True


@dataclass(slots=True)
class HeldJob:
    """A job as a client's Job object remembers it: the values at the time it was read, which may be stale since."""

    id: str
    opts: dict[str, Any] = field(default_factory=lambda: {"attempts": 0})
    attempts_made: int = 0
    stack_traces: int = 0
    parent_key: str | None = None


@dataclass(slots=True)
class ModelHandle:
    """An open object of the client: what it was opened with, and what it remembers between calls."""

    name: str
    role: str
    queue: str
    options: dict[str, Any]
    held: dict[str, HeldJob] = field(default_factory=dict)
    """Workers: the jobs that were claimed and not given back yet."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Workers: the token under which each held job was claimed."""
    paused: bool = False
    limited_until_ms: float = 0
    """Workers: by the client's clock, until when it does not ask for work."""
    known_scripts: set[str] = field(default_factory=set)
    """The adding scripts that Redis is believed to have, because this handle has used them before."""

    def option(self, name: str, default: Any) -> Any:
        """An option of the handle; a missing one and JSON null are the default."""
        value = self.options.get(name)
        return default if value is None else value


class CallFailure(Exception):
    """The call does not succeed; what it did up to here stays done, as in a Lua script."""

    def __init__(self, code: DriverCode, reason: str) -> None:
        super().__init__(reason)
        self.code: str = code


class NotModelled(Exception):
    """The model says nothing about such a call; the message names what is missing."""


def refuse(reason: str) -> NoReturn:
    """The client itself says no, before anything is sent."""
    raise CallFailure("invalid-argument", reason)


def script_error(code: ErrorCode) -> NoReturn:
    """A script returns a negative number."""
    raise CallFailure(DRIVER_CODES[code], code.name)  # type: ignore[arg-type]  # the table holds codes only


def script_breaks(reason: str) -> NoReturn:
    """A script ends with an error of Lua or Redis; earlier writes stay."""
    raise CallFailure("other", reason)
