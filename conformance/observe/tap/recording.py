"""The recorded traffic of a tap: one record per command, with its reply and its fate."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from conformance.observe.tap.commands import ScriptNames, digest_of, may_block, meaning_of, name_of, without_secrets

Fate: TypeAlias = Literal["waiting", "sent", "answered", "answered-by-tap", "discarded", "lost"]
"""`waiting`: not sent to Redis yet. `sent`: no reply yet. `answered`: by Redis. `answered-by-tap`: an error of a rule
instead; Redis has never seen the command if `sent_s` is None. `discarded`: queued in a transaction that was not
executed. `lost`: the connection ended first; Redis may have seen the command unless `sent_s` is None."""

KILLED = b"killed by user with SCRIPT KILL"
"""The part of the reply to a killed script's caller that is the same in all versions of Redis."""
KEPT_COMMANDS = 200_000
KEPT_ARGUMENT_BYTES = 64 * 1024
"""Recorded bytes of each word of a command. Only user data of BullMQ is longer."""
KEPT_REPLY_BYTES = 4096
KEPT_SCRIPT_REPLY_BYTES = 64 * 1024
"""A script that claims a job returns all its fields before the id, including stack traces of failures."""
_SHOWN_BYTES = 60

_SECRETIVE = frozenset({"AUTH", "HELLO", "CONFIG", "ACL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
    """A reply of Redis: its first bytes unchanged, and its total size. `at_s`: `time.monotonic()`."""

    head: bytes
    size: int
    at_s: float

    @property
    def error(self) -> str | None:
        """The text of an error, None for any other reply."""
        if self.head[:1] == b"-":
            return self.head[1:].split(b"\r\n", 1)[0].decode("utf-8", "replace")
        if self.head[:1] == b"!":
            return self.head.partition(b"\r\n")[2].removesuffix(b"\r\n").decode("utf-8", "replace")
        return None

    @property
    def refuses(self) -> bool:
        """Whether it is an error, or a negative number: the code of a script that has changed nothing."""
        return self.error is not None or self.head.startswith(b":-")

    @property
    def error_code(self) -> str | None:
        """First word of an error (`NOSCRIPT`, `MOVED`, `ERR`), None for any other reply."""
        return self.error.split(" ", 1)[0] if self.error else None

    def __str__(self) -> str:
        """A short text for messages."""
        return short_text(self.head.replace(b"\r\n", b" ").rstrip()) + ("..." if self.size > len(self.head) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """One command of a client.

    `sequence` counts all commands of a tap from 1 in the order of their arrival, `connection` its connections from 1,
    `node` is the address that the connection leads to. Times are `time.monotonic()` seconds. `args` is the whole
    command, name first; `clipped`: some word was too long, and only its start is recorded. `digest` and `script` (the
    name, None for an unknown script) are of EVAL and EVALSHA. `transaction` numbers the MULTI of the connection that
    the command belongs to (MULTI and EXEC included); the `reply` of a queued command is its part in that of EXEC.
    `in_flight`: the number of earlier commands on the connection without reply; more than 0 is a pipeline.
    """

    sequence: int
    connection: int
    node: str
    arrived_s: float
    sent_s: float | None
    name: str
    args: tuple[bytes, ...]
    clipped: bool
    keys: tuple[bytes, ...]
    argv: tuple[bytes, ...]
    digest: str | None
    script: str | None
    transaction: int | None
    in_flight: int
    blocking: bool
    fate: Fate
    reply: ReplyRecord | None

    @property
    def waits_for_work(self) -> bool:
        """Whether Redis keeps the reply back until there is work. XREAD does not count: it belongs to event readers."""
        return self.blocking and not self.name.startswith("XREAD")

    @property
    def found_no_work(self) -> bool:
        """Whether it reads a place where work waits, and Redis has replied."""
        places = (b":wait", b":marker", b":prioritized")
        return self.reply is not None and any(key.endswith(places) for key in self.keys)

    def __str__(self) -> str:
        """One line."""
        what = f"{self.name} {self.script}" if self.script else " ".join(short_text(word) for word in self.args[:4])
        answer = self.reply if self.reply is not None else self.fate
        return f"#{self.sequence} ({self.connection}) {what} -> {answer}"


def short_text(word: bytes) -> str:
    """The start of a word of a command, in Python's notation, for messages."""
    text = repr(word[:_SHOWN_BYTES])[2:-1]
    return text if len(word) <= _SHOWN_BYTES else f"{text}..."


class TappedCommand:
    """A command in the loop of the tap, which changes it. `record` creates a read-only copy."""

    __slots__ = (
        "answer",
        "args",
        "arrived_s",
        "clipped",
        "confirmations",
        "connection",
        "digest",
        "fate",
        "in_flight",
        "name",
        "node",
        "raw",
        "sent_s",
        "sequence",
        "transaction",
    )

    def __init__(self, raw: bytes, args: tuple[bytes, ...], connection: int, node: str) -> None:
        self.raw = raw
        self.name = name_of(args)
        self.digest = digest_of(self.name, args)
        self.args = args
        self.clipped = False
        self.connection = connection
        self.node = node
        self.sequence = 0
        self.arrived_s = time.monotonic()
        self.sent_s: float | None = None
        self.transaction: int | None = None
        self.in_flight = 0
        self.fate: Fate = "waiting"
        self.answer: ReplyRecord | None = None
        self.confirmations: int | None = None

    def clip(self, kept_bytes: int) -> None:
        """Keep the first `kept_bytes` of each word."""
        if len(self.raw) > kept_bytes:
            self.clipped = any(len(word) > kept_bytes for word in self.args)
            self.args = tuple(word[:kept_bytes] for word in self.args)

    def answered(self, raw: bytes, fate: Fate = "answered") -> None:
        """Record the reply."""
        kept = KEPT_SCRIPT_REPLY_BYTES if self.digest else KEPT_REPLY_BYTES
        self.answer = ReplyRecord(head=raw[:kept], size=len(raw), at_s=time.monotonic())
        self.fate = fate

    def is_unended(self, since_s: float) -> bool:
        """Whether Redis has killed the script, or has been running it since then (`time.monotonic()`)."""
        if self.answer is None:
            return self.sent_s is not None and self.fate == "sent" and self.sent_s <= since_s
        return self.answer.head[:1] == b"-" and KILLED in self.answer.head

    def record(self, scripts: Mapping[str, str]) -> CommandRecord:
        """The command as it is now. `scripts`: names by SHA-1."""
        meaning = meaning_of(self.args, self.digest, scripts)
        return CommandRecord(
            sequence=self.sequence,
            connection=self.connection,
            node=self.node,
            arrived_s=self.arrived_s,
            sent_s=self.sent_s,
            name=self.name,
            args=without_secrets(self.name, self.args),
            clipped=self.clipped,
            keys=meaning.keys,
            argv=without_secrets(self.name, self.args)[1:] if self.name in _SECRETIVE else meaning.argv,
            digest=self.digest,
            script=meaning.script,
            transaction=self.transaction,
            in_flight=self.in_flight,
            blocking=may_block(self.name, self.args),
            fate=self.fate,
            reply=self.answer,
        )


Matching: TypeAlias = Callable[[CommandRecord], bool]
"""A condition on a command."""


class NotSeen(TimeoutError):
    """A command did not come before its deadline. The text shows the traffic instead."""


class Recording:
    """The newest 200,000 commands of a tap; `dropped` is the number of older ones.

    `kept_bytes`: recorded bytes of each word of a command.
    """

    def __init__(
        self,
        scripts: Mapping[str, str],
        texts: Mapping[str, str] | None = None,
        *,
        kept_bytes: int = KEPT_ARGUMENT_BYTES,
    ) -> None:
        self._kept_bytes = kept_bytes
        self.scripts = dict(scripts)
        """Names by SHA-1."""
        self.names = ScriptNames(self.scripts, texts or {})
        self.dropped = 0
        self._commands: list[TappedCommand] = []
        self._last = 0
        self._changed = threading.Condition()
        self._waiting = 0

    def open(self, command: TappedCommand) -> None:
        """Number a command and keep it. Only called by the loop of the tap."""
        self._last += 1
        command.sequence = self._last
        # Clipped before it is kept: job data of megabytes times 200,000 commands would fill the memory.
        command.clip(self._kept_bytes)
        self._commands.append(command)
        # Learned now: the text of a script mostly passes only once, and later calls have only its digest.
        self.names.learn(command.name, command.args, command.digest)
        if len(self._commands) > KEPT_COMMANDS:
            # A tenth at once: deleting one at the front per command would move the whole list each time.
            gone = KEPT_COMMANDS // 10
            del self._commands[:gone]
            self.dropped += gone
        if self._waiting:
            self.changed()

    def changed(self) -> None:
        """Wake waiting threads after a change. Only called by the loop of the tap."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def forget(self, *, upto: int | None = None) -> None:
        """Drop all commands, or those up to a number; the numbering continues. Only called by the loop of the tap."""
        last = self._last if upto is None else upto
        del self._commands[: bisect_right(self._commands, last, key=lambda command: command.sequence)]
        self.dropped = 0

    def mark(self) -> int:
        """The number of the newest command: pass it to `commands` as `after` to get only later ones."""
        return self._last

    def commands(self, *, after: int = 0, where: Matching | None = None) -> tuple[CommandRecord, ...]:
        """The commands in the order of their arrival, as they are now."""
        records = (command.record(self.scripts) for command in self._newer(after))
        return tuple(record for record in records if where is None or where(record))

    def _newer(self, after: int) -> list[TappedCommand]:
        commands = self._commands[:]  # copied at once, because the loop of the tap appends and drops commands meanwhile
        # Sequences grow, so a search is enough: scenarios poll with `after` near the end of a long list.
        return commands[bisect_right(commands, after, key=lambda command: command.sequence) :]

    def unanswered(self, at_s: float, *, after: int = 0) -> tuple[CommandRecord, ...]:
        """The commands that had no reply at a time (`time.monotonic()`); a flood of others costs little."""
        newer = self._newer(after)
        return tuple(
            command.record(self.scripts) for command in newer if command.answer is None or command.answer.at_s > at_s
        )

    def unended_scripts(self, running_s: float) -> tuple[CommandRecord, ...]:
        """The calls of scripts that Redis has killed, or has been running for at least `running_s`."""
        since_s = time.monotonic() - running_s
        # Unlike `commands` without a copy of each: this is asked again and again during a scenario.
        unended = [command for command in self._commands[:] if command.digest and command.is_unended(since_s)]
        return tuple(command.record(self.scripts) for command in unended)

    def has_reply(self, start: bytes) -> bool:
        """Whether some reply starts with these bytes."""
        replies = (command.answer for command in self._commands[:])
        return any(reply is not None and reply.head.startswith(start) for reply in replies)

    def calls(self, *scripts: str, after: int = 0) -> tuple[CommandRecord, ...]:
        """The calls of these scripts, or of the client's own variants of them; a flood of others costs little."""
        called = (command for command in self._newer(after) if self.names.of(command.digest) in scripts)
        return tuple(command.record(self.scripts) for command in called)

    def wait_for(self, where: Matching, *, deadline_ms: int, count: int = 1, after: int = 0) -> CommandRecord:
        """Wait until `count` commands match (the condition may include the reply), and return the last of them.

        Raises NotSeen with the newest commands after `deadline_ms`.
        """
        # A fixed end: every command wakes this thread, and restarting the deadline would never expire under load.
        ends = time.monotonic() + deadline_ms / 1000
        with self._changed:
            # Counted before the first check: otherwise a command between that check and `wait` would not wake this
            # thread.
            self._waiting += 1
            try:
                while len(matching := self.commands(after=after, where=where)) < count:
                    # Checked after the condition, so a command that arrived exactly at the deadline still counts.
                    left = ends - time.monotonic()
                    if left <= 0:
                        raise NotSeen(f"{len(matching)} of {count} commands; {self.tail(after)}")
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
        return matching[count - 1]

    def tail(self, after: int = 0, lines: int = 15) -> str:
        """The newest commands, one per line, for messages."""
        newest = self.commands(after=after)[-lines:]
        return "last seen:\n" + "\n".join(f"  {record}" for record in newest) if newest else "nothing was seen"
