"""The lines of the driver protocol, version 1: JSON objects, one per line, distinguished by `type`.

Kit to driver: `Hello`, `Call`. Driver to kit: `Ready`, `Result`, `DriverEvent`. Field names are snake_case; operation
names and everything inside `options` and `opts` keep BullMQ's own spelling. Every line is validated when it is read: an
unknown `type`, a missing field or a field of the wrong type is a protocol violation, unknown extra fields are ignored
so that a driver can be newer than the kit.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

import msgspec

from conformance.driver.errors import DriverBroken, DriverError, NotJson, SchemaViolation, StdoutPollution
from conformance.driver.ops.lifecycle import EVENT_ARGS

PROTOCOL_VERSION = 1

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longer lines are rejected unparsed (bytes, including the newline)."""

Capability = Literal[
    "clock",
    "manual-worker",
    "managed-worker",
    "cluster",
    "raw-data",
    "sandbox",
    "url",
    "client",
    "fail-fast",
    "library",
    "queue-events",
    "unheard",
    "meter",
]
"""An ability of a driver beyond single operations.

`clock`: obeys `now_ms`. `manual-worker`: workers of processor `manual`. `managed-worker`: the client's real loop.
`cluster`: accepts `redis.mode` `cluster`. `raw-data`: `data_raw` reaches Redis as exactly the same text.
`sandbox`: workers of processor `sandboxed`. `url`, `client`: accepts this `redis.form`. `fail-fast`: accepts
`redis.fail_fast`. `library`: accepts `library` in `open`. `queue-events`: queues report what they do (`paused`,
`resumed`, `removed`, `progress`).
`unheard`: obeys `unheard` of `open`, and reports `uncaught` errors. `meter`: obeys `meter` of `open`.
"""

EXCERPT_CHARACTERS = 160
Value = TypeVar("Value")


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a driver: name, language, its own version, and the BullMQ version that it targets.

    `packages`: versions of its libraries (Redis client, ...) by name, because a finding may depend on them.
    """

    name: str
    language: str
    version: str
    targets: str = "5.62.0"
    packages: dict[str, str] = {}


class DescribedClient(Protocol):
    """The description of a client that reports print."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def language(self) -> str:
        """The language that it is written in."""

    @property
    def version(self) -> str:
        """Its own version."""

    @property
    def packages(self) -> dict[str, str]:
        """Versions of its libraries, by name."""


def client_text(client: DescribedClient) -> str:
    """The client and its libraries with all versions, for reports."""
    packages = ", ".join(f"{name} {number}" for name, number in client.packages.items())
    return f"{client.name} {client.version} ({client.language}{f'; {packages}' if packages else ''})"


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="hello"):
    """The kit's first line. `seed` is for the random numbers of the driver."""

    protocol: int
    seed: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """The driver's first line: its client, operations and capabilities.

    `fixed_prefix`: the only key prefix that the client can use; null if it accepts any. The kit then sends it in every
    `open`, and separates scenarios by the names of their queues. `lacks`: features that the client does not have.
    `worker-events`: its workers report no events (`completed`, `error`, ...), so the kit reads the end of a job in
    Redis.
    """

    protocol: int
    client: ClientInfo
    ops: list[str]
    capabilities: list[str]
    fixed_prefix: str | None = None
    lacks: list[Literal["worker-events"]] = []


class Call(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="call", omit_defaults=True):
    """One operation on one handle.

    `deadline_ms`: how long the kit waits for the result. `now_ms` (Unix ms, only sent to drivers with `clock`): the
    client's clock stops at this instant until a later call sends another one; `reset` lets it run again.
    """

    id: int
    op: str
    args: dict[str, Any]
    handle: str | None = None
    deadline_ms: int = 5000
    now_ms: int | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The answer to one call: `ok` it happened, `fail` it certainly did not, `info` it is unknown, `unsupported`.

    `no_answer`: with `ok` and without `value`, if the client does the operation but does not return its result.
    """

    id: int
    status: Literal["ok", "fail", "info", "unsupported"]
    value: Any = None
    error: DriverError | None = None
    reason: str | None = None
    no_answer: bool = False


class DriverEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """An event of a handle; names and arguments are in `ops/lifecycle.py`."""

    handle: str
    name: str
    args: dict[str, Any] = {}


DriverLine = Ready | Result | DriverEvent

_decoder: msgspec.json.Decoder[DriverLine] = msgspec.json.Decoder(DriverLine)


def encode(message: Hello | Call) -> bytes:
    """One line for a driver, newline included."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> DriverLine:
    """Read one line of a driver (without its newline). Raises NotJson, StdoutPollution or SchemaViolation."""
    text = _utf8(line)
    # Checked before parsing: a log line should be called a log line, not invalid JSON.
    if not text.lstrip().startswith("{"):
        raise _not_an_object(text)
    try:
        message = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise SchemaViolation(_what(text), str(error), excerpt(text)) from error
    # Deep nesting exhausts the decoder's stack: the driver sent it, so it is the driver's problem.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error), excerpt(text)) from error
    if isinstance(message, DriverEvent):
        _check_event(message)
    elif isinstance(message, Result):
        _check_result(message, text)
    return message


def convert(value: Any, wanted: type[Value], what: str) -> Value:
    """Check a decoded value against a type. Raises SchemaViolation that names the field."""
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SchemaViolation(what, str(error), excerpt(_as_json(value))) from error


def excerpt(text: str | bytes) -> str:
    """Quote the start of a line, for a message."""
    if isinstance(text, bytes):
        # At most 4 bytes per character, so a line of 16 MB is not decoded for a short excerpt.
        text = text[: EXCERPT_CHARACTERS * 4].decode("utf-8", errors="backslashreplace")
    if len(text) > EXCERPT_CHARACTERS:
        return f"{text[:EXCERPT_CHARACTERS]!r}... ({len(text)} characters)"
    return repr(text)


def _utf8(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"invalid UTF-8 at byte {error.start}", excerpt(line)) from error


def _not_an_object(text: str) -> DriverBroken:
    if _looks_like_a_log(text):
        return StdoutPollution(excerpt(text))
    return NotJson("not an object" if text.strip() else "the line is empty", excerpt(text))


def _looks_like_a_log(text: str) -> bool:
    """Whether it is text for people: printable, with letters."""
    shown = text.strip().replace("\t", " ").replace("\x1b", "")  # colours are still a log
    return shown.isprintable() and any(character.isalpha() for character in shown)


def _what(text: str) -> str:
    """The kind of a line that does not fit the schema, as far as recognizable."""
    for kind in ("ready", "result", "event"):
        if f'"type":"{kind}"' in text.replace(" ", ""):
            return f"a line of type `{kind}`"
    return "a line on its stdout"


def _check_result(result: Result, text: str) -> None:
    if result.status in {"fail", "info"} and result.error is None:
        raise SchemaViolation(f"a result with status `{result.status}`", "it needs `error`", excerpt(text))


def _check_event(event: DriverEvent) -> None:
    wanted = EVENT_ARGS.get(event.name)
    if wanted is not None:
        convert(event.args, wanted, f"the event `{event.name}` of {event.handle}")


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode("utf-8")
    except (msgspec.MsgspecError, TypeError, RecursionError, ValueError):
        return repr(type(value))
