"""The shapes of what a release writes, from the lines of Redis' MONITOR: keys, fields, events and options. Pure.

A shape has no ids and no times: `<job>:lock`, `de:<id>`. Only commands of scripts and of drivers that create or change
data count, so that a key which lives for a moment is seen as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import msgpack

from conformance.observe.tap.commands import BY_DIGEST, BY_TEXT, argv_of, digest_of, keys_of, name_of
from conformance.protocol.scripts import SCRIPT_SIGNATURES, ScriptSignature

Kind = Literal["key", "field", "event", "script key", "script argument"]
"""The kind of a place: a key, a field of a hash, a field of an event, or a KEY or a packed argument of a script."""

Words = tuple[bytes, ...]

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}

_CREATING: Mapping[str, str] = {
    **dict.fromkeys(("HSET", "HMSET", "HSETNX", "HINCRBY", "HINCRBYFLOAT"), "hash"),
    **dict.fromkeys(("ZADD", "ZINCRBY", "ZRANGESTORE"), "sorted set"),
    **dict.fromkeys(("LPUSH", "RPUSH", "RPOPLPUSH", "LMOVE"), "list"),
    **dict.fromkeys(("SADD", "SMOVE"), "set"),
    **dict.fromkeys(("SET", "SETEX", "PSETEX", "INCR", "INCRBY"), "string"),
    "XADD": "stream",
}
"""Commands after which a key exists, with its type."""
_TO_SECOND = frozenset({"RPOPLPUSH", "LMOVE", "SMOVE"})
_FIELD_LISTS = frozenset({"HSET", "HMSET", "HSETNX", "HINCRBY", "HINCRBYFLOAT"})
_LIVES: Mapping[str, str] = {"PEXPIRE": "PX", "EXPIRE": "EX"}

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"\d{10,}")
_NAMED_IDS = re.compile(r"^(de|dn|repeat):(?!<)[^:]+")
_LONGEST_VALUE = 60
_NOT_OPTIONS = frozenset({"data", "returnvalue", "progress", "failedReason", "stacktrace"})
"""Fields of a job that hold what users and processors give."""
_OF_RUNS = (".id", ".queue", ".queueKey", ".name", " name", " token", ".version")
"""Ends of places whose values are chosen by the kit, or name the run or the release."""


@dataclass
class Writes:
    """The writes of one run: `places` by kind, and values of options, limits and times to live by place."""

    places: set[tuple[Kind, str]] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=dict)

    def add_value(self, place: str, value: Any) -> None:
        """Note a value that a user could have chosen; values of the run itself, and long ones, are left out."""
        if place.endswith(_OF_RUNS) or len(str(value)) > _LONGEST_VALUE:
            return
        self.values.setdefault(place, set()).add(json.dumps(value, sort_keys=True, default=str))


@dataclass(frozen=True)
class MonitorLine:
    """A command, and whether a script sent it."""

    words: Words
    in_script: bool


def parsed_line(line: str) -> MonitorLine | None:
    """Read a line of MONITOR; None for one that holds no command."""
    source, bracket, rest = line.partition("] ")
    words = tuple(_unescaped(word.encode("latin-1")) for word in _WORD.findall(rest))
    return MonitorLine(words, source.endswith(" lua")) if bracket and words else None


def _unescaped(word: bytes) -> bytes:
    def plain(found: re.Match[bytes]) -> bytes:
        text = found[1]
        return bytes([int(text[1:], 16)]) if len(text) > 1 else _ESCAPED.get(text, text)

    return _ESCAPE.sub(plain, word)


def writes_of(lines: Iterable[MonitorLine], base: str, scripts: Mapping[str, str]) -> Writes:
    """Everything that was written below `base` (`PREFIX:QUEUE:`). `scripts`: names by SHA-1; others are the kit's."""
    mine = [line for line in lines if any(base.encode() in word for word in line.words)]
    reader = _Reader(base, frozenset(_job_ids(mine, base)))
    in_official = False
    for line in mine:
        name = name_of(line.words)
        if name in BY_DIGEST | BY_TEXT:
            script = scripts.get(digest_of(name, line.words) or "")
            in_official = script is not None
            if script is not None:
                reader.script(script, line.words)
        elif in_official or not line.in_script:
            reader.command(name, line.words)
    return reader.found


def _job_ids(lines: Iterable[MonitorLine], base: str) -> Iterator[str]:
    for line in lines:
        if name_of(line.words) in _FIELD_LISTS and {b"timestamp", b"name"} <= {*line.words[2:]}:
            yield _text(line.words[1]).removeprefix(base)


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")


@dataclass
class _Reader:
    base: str
    jobs: frozenset[str]
    found: Writes = field(default_factory=Writes)
    types: dict[str, str] = field(default_factory=dict)
    """Of the keys that exist, by their shapes."""

    def shape(self, key: bytes) -> str:
        """The key without prefix, ids and times."""
        text = _text(key).removeprefix(self.base)
        if not text:
            return "<base>"
        job = max((job for job in self.jobs if text == job or text.startswith(f"{job}:")), key=len, default=None)
        if job is not None:
            return "<job>" + text[len(job) :]
        general = _NAMED_IDS.sub(r"\1:<id>", _TIME.sub("<time>", _HASH.sub("<hash>", _UUID.sub("<job>", text))))
        return general.replace(self.base, "<base>")

    def script(self, name: str, words: Words) -> None:
        """Note KEYS, the contents of packed arguments, and numbers that are limits or durations.

        The options of a job that is added are noted as fields of its hash.
        """
        command = name_of(words)
        for key in keys_of(command, words):
            self.found.places.add(("script key", f"{name}: {self.shape(key)}"))
        layout = SCRIPT_SIGNATURES.get(name)
        for place, argument in enumerate(argv_of(command, words)):
            if argument[:1] >= b"\x80" and not name.startswith("add"):
                for option, value in _options_in(_unpacked(argument)):
                    self.found.places.add(("script argument", f"{name}: {option}"))
                    self.found.add_value(f"{name}: {option}", value)
            elif _kind_of(layout, place) in {"count", "duration"} and argument.isdigit():
                self.found.add_value(f"{name}: ARGV {place + 1}", int(argument))

    def command(self, name: str, words: Words) -> None:
        """Note a command that writes, or that waits."""
        keys = keys_of(name, words)
        if not keys:
            return
        shape = self.shape(keys[-1] if name in _TO_SECOND else keys[0])
        if name in _CREATING:
            self._created(shape, _CREATING[name])
        elif name in {"RENAME", "RENAMENX"}:
            self._created(self.shape(keys[1]), self.types.get(shape, ""))
        if name in _FIELD_LISTS:
            for key, value in zip(words[2::2], words[3::2], strict=False):
                self._field(shape, _text(key), value)
        elif name == "XADD":
            self._event(shape, words[2:])
        else:
            self._limits(name, shape, words)

    def _limits(self, name: str, shape: str, words: Words) -> None:
        match name:
            case "SET":
                self._times(shape, words[3:])
            case "XREAD":
                self._times("XREAD", words[1:5])
            case "PEXPIRE" | "EXPIRE":
                self._value(f"{shape} {_LIVES[name]}", words[2])
            case "BZPOPMIN" | "BRPOPLPUSH" | "BLMOVE":
                self._value(f"{name} timeout", words[-1])

    def _created(self, shape: str, kind: str) -> None:
        if kind:
            self.types[shape] = kind
            self.found.places.add(("key", f"{shape} ({kind})"))

    def _field(self, shape: str, name: str, value: bytes) -> None:
        if self.base in name or name in self.jobs:
            name = "<key>"
        self.found.places.add(("field", f"{shape}.{name}"))
        if name in _NOT_OPTIONS:
            return
        parsed = _json_in(value)
        if isinstance(parsed, dict):
            for option, inner in _options_in(parsed):
                self.found.places.add(("field", f"{shape}.{name}.{option}"))
                self.found.add_value(f"{shape}.{name}.{option}", inner)
        elif shape == "meta":
            self.found.add_value(f"{shape}.{name}", parsed)

    def _event(self, shape: str, words: Words) -> None:
        upper = [word.upper() for word in words]
        if b"MAXLEN" in upper:
            at = upper.index(b"MAXLEN")
            limit = next((word for word in words[at + 1 :] if word.isdigit()), b"")
            self._value(f"{shape} MAXLEN", limit)
        start = next((place for place, word in enumerate(words) if word == b"*"), len(words))
        pairs = dict(zip(words[start + 1 :: 2], words[start + 2 :: 2], strict=False))
        event = _text(pairs.pop(b"event", b""))
        for name in pairs:
            self.found.places.add(("event", f"{event}.{_text(name)}"))
        self.found.places.add(("event", event))

    def _times(self, shape: str, words: Words) -> None:
        for unit, number in pairwise(words):
            if unit.upper() in {b"PX", b"EX", b"BLOCK", b"COUNT"}:
                self._value(f"{shape} {unit.decode().upper()}", number)

    def _value(self, place: str, value: bytes) -> None:
        self.found.add_value(place, _json_in(value))


def _kind_of(layout: ScriptSignature | None, place: int) -> str:
    return layout.args[place].rstrip("?") if layout is not None and place < len(layout.args) else ""


def _unpacked(argument: bytes) -> Any:
    try:
        return msgpack.unpackb(argument, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return None


def _json_in(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return _text(value)


def _options_in(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The names of options at every level, with a dot for each level, and the values of the innermost."""
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        path = f"{above}{name}"
        if isinstance(inner, dict) and inner:
            yield from _options_in(inner, f"{path}.")
        else:
            yield path, inner
