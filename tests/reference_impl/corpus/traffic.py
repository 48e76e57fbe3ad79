"""The commands of a client, recorded by a tap and normalised: scripts by name, arguments decoded, names replaced."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from conformance.observe.tap.tap import Tap
from tests.reference_impl.corpus.steps import PREFIX

EVERY_BYTE = 1 << 30
"""The bytes of each word that the tap records: more than Redis accepts (512 MiB)."""


@dataclass(frozen=True)
class RecordedCommand:
    """A command as it crossed the wire, on the connection that was opened while `opener` was current."""

    opener: str
    words: tuple[bytes, ...]


class TrafficRecorder:
    """Records all commands of one client. A command is recorded before its reply arrives."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._opener = ""
        self._openers: dict[int, str] = {}
        """By the number of the connection."""
        self._recorded = 0

    @property
    def address(self) -> str:
        return self._tap.address

    def attribute_to(self, opener: str) -> None:
        """Connections that come in from now on belong to this."""
        self._attribute_new_connections()
        self._opener = opener

    def take(self) -> list[RecordedCommand]:
        """All commands since the last time, in the order of their arrival."""
        self._attribute_new_connections()
        records = self._tap.recording.commands(after=self._recorded)
        assert not any(record.clipped for record in records), "every byte is compared"
        self._recorded = records[-1].sequence if records else self._recorded
        return [
            RecordedCommand(self._openers.setdefault(record.connection, self._opener), record.args)
            for record in records
        ]

    def _attribute_new_connections(self) -> None:
        for connection in self._tap.connections():
            self._openers.setdefault(connection.number, self._opener)


PACKED: Mapping[str, frozenset[int]] = {
    "addStandardJob": frozenset({0, 2}),
    "addDelayedJob": frozenset({0, 2}),
    "addPrioritizedJob": frozenset({0, 2}),
    "addParentJob": frozenset({0, 2}),
    "addJobScheduler": frozenset({1, 4, 5}),
    "addRepeatableJob": frozenset({1}),
    "updateJobScheduler": frozenset({3}),
    "moveToActive": frozenset({2}),
    "moveToFinished": frozenset({7, 8}),
    "moveToDelayed": frozenset({6}),
    "retryJob": frozenset({5}),
    "extendLocks": frozenset({1, 2}),
}
"""Which arguments (from 0) of a script are MessagePack; an empty one means no value."""

CHATTER = frozenset(
    {"INFO", "HELLO", "PING", "SELECT", "AUTH", "QUIT", "COMMAND", "CLIENT SETINFO", "SCRIPT EXISTS", "SCRIPT LOAD"}
)
"""Commands that prepare a connection or load scripts; they do not depend on queues."""

COMMANDS_APART = frozenset({"BZPOPMIN", "XREAD", "CLIENT SETNAME"})
"""Blocking commands, and the name of their connection, which a client may open on first use."""

_SUBCOMMANDS = frozenset({"CLIENT", "SCRIPT"})
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_STACK_FIELD = b"\xaastacktrace"
_STACK = "<stack>"


@dataclass(frozen=True)
class SentCommand:
    """One command. `name` is that of the script or of the command, `lane` identifies its connection.

    `arguments` are decoded values, `raw` the same as bytes: equal values may be written in different ways.
    """

    lane: str
    name: str
    keys: tuple[bytes, ...]
    arguments: tuple[Any, ...]
    raw: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"{self.name} keys={_shown(self.keys)} argv={_shown(self.arguments)}"


class TrafficReader:
    """Reads the commands of one client. uuids are numbered as they come up, so that equal numbers mean equal uuids."""

    def __init__(self, scripts: Mapping[str, str], prefix: str) -> None:
        self._scripts = scripts
        """Names by SHA-1 and by full text."""
        self._prefix = prefix.encode()
        self._uuids: dict[bytes, bytes] = {}

    def read(self, commands: Iterable[RecordedCommand]) -> list[SentCommand]:
        """Everything but chatter, in order.

        Of the reads of an event stream only the first counts: how many entries a later one finds, and so how many reads
        there are, depends on the moment; that every entry is read once is in the answers.
        """
        sent = [self._sent(command) for command in commands if _name(command.words) not in CHATTER]
        first_read = next((command for command in sent if command.name == "XREAD"), None)
        return [command for command in sent if command.name != "XREAD" or command is first_read]

    def _sent(self, command: RecordedCommand) -> SentCommand:
        name, words = _name(command.words), command.words
        if name in {"EVALSHA", "EVAL"}:
            script, key_count = self._scripts[words[1].decode()], int(words[2])
            keys, argv = words[3 : 3 + key_count], words[3 + key_count :]
            packed = PACKED.get(script, frozenset())
            read = [
                self._packed(word) if place in packed and word else self._plain(word) for place, word in enumerate(argv)
            ]
            return self._made(command.opener, script, keys, read)
        lane = name if name in COMMANDS_APART else command.opener
        return self._made(lane, name, (), [self._plain(word) for word in words[1 + name.count(" ") :]])

    def _made(self, lane: str, name: str, keys: Sequence[bytes], read: Sequence[tuple[Any, bytes]]) -> SentCommand:
        values, raw = tuple(value for value, _ in read), tuple(written for _, written in read)
        return SentCommand(lane, name, tuple(map(self.without_names, keys)), values, raw)

    def _plain(self, word: bytes) -> tuple[Any, bytes]:
        written = self.without_names(word)
        return written, written

    def _packed(self, word: bytes) -> tuple[Any, bytes]:
        value = msgpack.unpackb(word, raw=True, strict_map_key=False)
        return self._without_names_inside(_without_stack(value)), self.without_names(_without_stack_bytes(word))

    def _without_names_inside(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self.without_names(value)
        if isinstance(value, list):
            return [self._without_names_inside(element) for element in value]
        if isinstance(value, dict):
            return {name: self._without_names_inside(member) for name, member in value.items()}
        return "NaN" if isinstance(value, float) and math.isnan(value) else value

    def without_names(self, word: bytes) -> bytes:
        """Replace the values that are specific to each client."""
        return _UUID.sub(self._numbered, word.replace(self._prefix, PREFIX.encode()))

    def _numbered(self, found: re.Match[bytes]) -> bytes:
        return self._uuids.setdefault(found.group(), b"<uuid %d>" % (len(self._uuids) + 1))


def _name(words: Sequence[bytes]) -> str:
    first = words[0].decode().upper()
    return f"{first} {words[1].decode().upper()}" if first in _SUBCOMMANDS else first


def _without_stack(value: Any) -> Any:
    """Replace stack traces, which depend on the language; only their number stays in the flat field list."""
    if isinstance(value, list) and b"stacktrace" in value[::2]:
        place = value.index(b"stacktrace") + 1
        return [*value[:place], _traces(value[place]), *value[place + 1 :]]
    return value


def _without_stack_bytes(word: bytes) -> bytes:
    """Cut the stack traces out of the bytes, with their length."""
    before, found, after = word.partition(_STACK_FIELD)
    if not found:
        return word
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(after)
    traces = _traces(unpacker.unpack())
    return before + found + traces + after[unpacker.tell() :]


def _traces(text: bytes) -> bytes:
    return f"{len(json.loads(text))} x {_STACK}".encode()


def _shown(values: Sequence[Any]) -> str:
    return (
        "["
        + ", ".join(v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else repr(v) for v in values)
        + "]"
    )
