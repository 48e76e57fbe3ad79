"""What is kept of a command and of its reply. Pure data, and a text for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Fate: TypeAlias = Literal["waiting", "sent", "answered", "answered-by-tap", "discarded", "lost"]
"""`waiting`: not sent to Redis yet. `sent`: no reply yet. `answered`: by Redis. `answered-by-tap`: an error of a rule
instead; Redis has never seen the command if `sent_s` is None. `discarded`: queued in a transaction that was not
executed. `lost`: the connection ended first; Redis may have seen the command unless `sent_s` is None."""

KEPT_ARGUMENT_BYTES = 64 * 1024
"""What is kept of one word of a command; nothing of BullMQ but users' data is longer."""
KEPT_REPLY_BYTES = 4096
KEPT_SCRIPT_REPLY_BYTES = 64 * 1024
"""A script that claims a job answers all its fields before the id, a failed job's stack traces among them."""
_SHOWN_BYTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
    """What Redis answered: the first bytes as they came, and the size of it all. `at_s`: `time.monotonic()`."""

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
    def error_code(self) -> str | None:
        """First word of an error (`NOSCRIPT`, `MOVED`, `ERR`), None for any other reply."""
        return self.error.split(" ", 1)[0] if self.error else None

    def __str__(self) -> str:
        """Short, for people."""
        return shown(self.head.replace(b"\r\n", b" ").rstrip()) + ("..." if self.size > len(self.head) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """One command of a client.

    `sequence` counts all commands of a tap from 1 in the order of their arrival, `connection` its connections from 1,
    `node` is the address that the connection leads to. Times are `time.monotonic()` seconds. `args` is the whole
    command, name first; `clipped`: some word was too long and only its beginning is kept. `digest` and `script` (the
    name, None for an unknown script) are of EVAL and EVALSHA. `transaction` numbers the MULTI of the connection that
    the command belongs to (MULTI and EXEC included); the `reply` of a queued command is its part in that of EXEC.
    `in_flight`: how many commands before it on the connection had no reply yet; more than 0 is a pipeline.
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

    def __str__(self) -> str:
        """One line."""
        what = f"{self.name} {self.script}" if self.script else " ".join(shown(word) for word in self.args[:4])
        answer = self.reply if self.reply is not None else self.fate
        return f"#{self.sequence} ({self.connection}) {what} -> {answer}"


def shown(word: bytes) -> str:
    """A word for people: its beginning, as Python would write it."""
    text = repr(word[:_SHOWN_BYTES])[2:-1]
    return text if len(word) <= _SHOWN_BYTES else f"{text}..."
