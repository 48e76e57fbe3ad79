"""A command on its way through the tap."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from conformance.observe.tap.commands import digest_of, may_block, meaning_of, name_of, without_secrets
from conformance.observe.tap.records import (
    KEPT_REPLY_BYTES,
    KEPT_SCRIPT_REPLY_BYTES,
    CommandRecord,
    Fate,
    ReplyRecord,
)

if TYPE_CHECKING:
    from conformance.observe.tap.rules import Rule  # rules know commands; a command only carries its rules along

_SECRETIVE = frozenset({"AUTH", "HELLO", "CONFIG", "ACL"})


class Flight:
    """A command on its way; what the loop of the tap knows and changes. `record` is what others may see of it."""

    __slots__ = (
        "answer",
        "args",
        "arrived_s",
        "clipped",
        "confirmations",
        "connection",
        "digest",
        "due",
        "fate",
        "in_flight",
        "keys",
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
        self.keys: tuple[bytes, ...] | None = None
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
        self.due: list[Rule] | None = None

    def clip(self, kept_bytes: int) -> None:
        """Keep so many bytes of each word."""
        if len(self.raw) > kept_bytes:
            self.clipped = any(len(word) > kept_bytes for word in self.args)
            self.args = tuple(word[:kept_bytes] for word in self.args)

    def answered(self, raw: bytes, fate: Fate = "answered") -> None:
        """Note the reply."""
        kept = KEPT_SCRIPT_REPLY_BYTES if self.digest else KEPT_REPLY_BYTES
        self.answer = ReplyRecord(head=raw[:kept], size=len(raw), at_s=time.monotonic())
        self.fate = fate

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
