"""Reading one line of a driver: bytes in, a typed message or a `DriverBroken` out, never any other exception."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from conformance.driver.errors import DriverBroken, NotJson, SchemaViolation, StdoutPollution
from conformance.driver.messages import Call, DriverLine, Event, Hello, Result
from conformance.driver.ops.events import EVENT_ARGS

EXCERPT_CHARACTERS = 160

Value = TypeVar("Value")

_decoder: msgspec.json.Decoder[DriverLine] = msgspec.json.Decoder(DriverLine)


def encode(message: Hello | Call) -> bytes:
    """One line for a driver, newline included."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> DriverLine:
    """Read one line of a driver (without its newline). Raises NotJson, StdoutPollution or SchemaViolation."""
    text = _utf8(line)
    if not text.lstrip().startswith("{"):
        raise _not_an_object(text)
    try:
        message = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise SchemaViolation(_what(text), str(error), excerpt(text)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error), excerpt(text)) from error
    if isinstance(message, Event):
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
    """Quote the beginning of a line, so that it can stand in a message."""
    if isinstance(text, bytes):
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
    return NotJson("it is no object" if text.strip() else "the line is empty", excerpt(text))


def _looks_like_a_log(text: str) -> bool:
    """Tell whether it is text for people: printable, with letters."""
    shown = text.strip().replace("\t", " ").replace("\x1b", "")  # colours are still a log
    return shown.isprintable() and any(character.isalpha() for character in shown)


def _what(text: str) -> str:
    """Which line it is, as far as it can be told although it does not fit the schema."""
    for kind in ("ready", "result", "event"):
        if f'"type":"{kind}"' in text.replace(" ", ""):
            return f"a line of type `{kind}`"
    return "a line on its stdout"


def _check_result(result: Result, text: str) -> None:
    if result.status in {"fail", "info"} and result.error is None:
        raise SchemaViolation(f"a result with status `{result.status}`", "it needs `error`", excerpt(text))


def _check_event(event: Event) -> None:
    wanted = EVENT_ARGS.get(event.name)
    if wanted is not None:
        convert(event.args, wanted, f"the event `{event.name}` of {event.handle}")


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode("utf-8")
    except (msgspec.MsgspecError, TypeError, RecursionError, ValueError):
        return repr(type(value))
