"""JSON values as source text of the languages in which reproductions are written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from conformance.gate.client_language import Language


class NotWritable(Exception):
    """Something that a script cannot do; the text is the reason."""


def python_literal(value: Any) -> str:
    """A JSON value in Python."""
    _refuse_infinite(value)
    return ascii(msgspec.to_builtins(value))


def javascript_literal(value: Any) -> str:
    """A JSON value in JavaScript."""
    _refuse_infinite(value)
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True)


def rust_literal(value: Any) -> str:
    """Return the JSON text of a value as a raw string in Rust, for serde; `"#` would end the string."""
    return f'r#"{javascript_literal(value).replace("#", chr(92) + "u0023")}"#'


def parsing_literal(character: Callable[[str], str], special: str) -> Callable[[Any], str]:
    """Return a function for a language without JSON literals: texts are strings, objects and lists go through `parse`.

    `character`: how the language writes a character that is not printable ASCII. `special`: characters that need a
    backslash in its strings, besides `"` and the backslash.
    """

    def quoted(text: str) -> str:
        return (
            '"'
            + "".join(
                f"\\{letter}" if letter in f'"\\{special}' else letter if " " <= letter <= "~" else character(letter)
                for letter in text
            )
            + '"'
        )

    def literal(value: Any) -> str:
        value = msgspec.to_builtins(value)
        text = javascript_literal(value)
        # Larger numbers and fractions are written differently, or have another type, in some of the languages.
        plain = isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**31)
        if isinstance(value, str):
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                raise NotWritable("text with half of a surrogate pair")
            return quoted(value)
        return text if plain else f"parse({quoted(text)})"

    return literal


def _units(letter: str) -> str:
    r"""UTF-16 as `\u` escapes. Java reads these before it splits lines, so control characters are octal."""
    if letter < " ":
        return f"\\{ord(letter):03o}"
    encoded = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{encoded[start : start + 4]}" for start in range(0, len(encoded), 4))


def _fixed(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def _braced(letter: str) -> str:
    return f"\\u{{{ord(letter):x}}}"


LITERALS: Mapping[Language, Callable[[Any], str]] = {
    "python": python_literal,
    "javascript": javascript_literal,
    "rust": rust_literal,
    "go": parsing_literal(_fixed, ""),
    "csharp": parsing_literal(_fixed, ""),
    "java": parsing_literal(_units, ""),
    "php": parsing_literal(_braced, "$"),
    "ruby": parsing_literal(_braced, "#"),
    "elixir": parsing_literal(_braced, "#"),
}


def _refuse_infinite(value: Any) -> None:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_infinite(item)
    if isinstance(value, float) and not math.isfinite(value):
        raise NotWritable("a number that JSON does not have")
