"""Pairs replies with commands on one connection, inside and outside of transactions.

Redis answers in order, one frame per command, with these exceptions: pushes of RESP3 and messages of RESP2
subscriptions answer no command; a subscription is confirmed once per channel, in RESP3 by pushes; MONITOR sends further
lines; CLIENT REPLY turns replies off; empty commands have no reply.
"""

from __future__ import annotations

import re
from collections import deque

from conformance.observe.tap.recording import TappedCommand
from conformance.observe.tap.resp import decode, encode, plain, value_of
from conformance.observe.tap.rules import DueRule, TapRule

_SUBSCRIBING = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"})
_UNSUBSCRIBING = frozenset({"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"})
_CONFIRMED = _SUBSCRIBING | _UNSUBSCRIBING
_MESSAGES = frozenset({b"message", b"pmessage", b"smessage"})
_FIRST_WORD = re.compile(rb"[*>]\d+\r\n(?:\$\d+\r\n|\+)([a-z]+)\r\n")
_MONITOR_LINE = re.compile(rb"\+\d+\.\d+ \[")
_PUSH, _ARRAY, _ERROR, _LINE = b">*-+"


class ReplyPairing:
    """The commands that wait for replies. `switched_off`: CLIENT REPLY OFF is active."""

    def __init__(self) -> None:
        self.awaited: deque[TappedCommand] = deque()
        self.switched_off = False
        self._skip_next = False
        self._monitoring = False
        self._channels: dict[str, set[bytes]] = {name: set() for name in _SUBSCRIBING}
        self._special = False
        """Whether the connection has subscribed or monitors, so that frames without command may come."""

    def sent(self, command: TappedCommand) -> bool:
        """Record that a command goes to Redis. Returns whether a reply will come."""
        if self._is_silent(command):
            return False
        if command.name in _CONFIRMED or command.name in {"MONITOR", "RESET"}:
            self._special = True
        self.awaited.append(command)
        return True

    def pair(self, raw: bytes) -> tuple[TappedCommand | None, bool]:
        """The command of a reply (None if it answers no command), and whether it is the command's last reply."""
        # Nearly all connections never subscribe, and skip the slow path.
        if self._special or raw[0] == _PUSH:
            return self._pair_special(raw)
        # Without an awaited command Redis has sent an error by itself, for example "max number of clients reached".
        return (self.awaited.popleft(), True) if self.awaited else (None, False)

    def _is_silent(self, command: TappedCommand) -> bool:
        args = command.args
        if not args:
            return True
        # CLIENT REPLY SKIP applies to exactly one command.
        skipped, self._skip_next = self._skip_next, False
        if command.name == "CLIENT" and len(args) > 2 and args[1].upper() == b"REPLY":
            mode = args[2].upper()
            self.switched_off = mode == b"OFF" or (self.switched_off and mode != b"ON")
            self._skip_next = mode == b"SKIP"
            return mode in {b"OFF", b"SKIP"}
        return skipped or self.switched_off

    def _pair_special(self, raw: bytes) -> tuple[TappedCommand | None, bool]:
        """Pair on a connection that has subscribed, or that monitors."""
        word = _first_word(raw)
        # A message may arrive while a command waits for its reply: it must not be taken for the reply.
        if not self.awaited or self._is_unrequested(raw, word):
            return None, False
        head = self.awaited[0]
        if head.name in _CONFIRMED and raw[0] != _ERROR:
            # A push or message may come between the subscription and its confirmation.
            return self._confirm(head, raw) if word.decode("ascii").upper() == head.name else (None, False)
        if raw[0] == _PUSH:
            return None, False
        self._monitoring = head.name == "MONITOR" or (self._monitoring and head.name != "RESET")
        if head.name == "RESET":
            self._channels = {name: set() for name in _SUBSCRIBING}
        return self.awaited.popleft(), True

    def _is_unrequested(self, raw: bytes, word: bytes) -> bool:
        """Whether a frame is a message of a subscription, or a line of MONITOR."""
        if raw[0] == _ARRAY:
            return word in _MESSAGES and any(self._channels.values())
        return self._monitoring and raw[0] == _LINE and _MONITOR_LINE.match(raw) is not None

    def _confirm(self, head: TappedCommand, raw: bytes) -> tuple[TappedCommand, bool]:
        """Handle the confirmation of one channel.

        UNSUBSCRIBE without channels is confirmed once per subscribed channel, and once if there is none.
        """
        subscribing = head.name in _SUBSCRIBING
        channels = self._channels[head.name if subscribing else head.name.replace("UNSUB", "SUB")]
        if head.confirmations is None:
            head.confirmations = len(head.args) - 1 or max(1, len(channels))
        channel = plain(decode(raw))[1]
        if channel is not None:
            (channels.add if subscribing else channels.discard)(channel)
        head.confirmations -= 1
        if head.confirmations == 0:
            self.awaited.popleft()
        return head, head.confirmations == 0


def _first_word(raw: bytes) -> bytes:
    match = _FIRST_WORD.match(raw)
    return match[1] if match else b""


class Transactions:
    """The transactions of a connection (numbered from 1): their commands, and the part of each in the reply to EXEC."""

    def __init__(self) -> None:
        self._number = 0
        self._open = False
        self._queued: dict[int, list[TappedCommand]] = {}
        self._due: dict[int, list[DueRule]] = {}

    def arrived(self, command: TappedCommand) -> None:
        """Assign a new command to its transaction."""
        if self._open:
            command.transaction = self._number
            if command.name in {"EXEC", "DISCARD", "RESET"}:
                self._open = False
            elif command.args and command.name != "MULTI":
                self._queued[self._number].append(command)
        elif command.name == "MULTI":
            self._open = True
            self._number += 1
            self._queued[self._number] = []
            command.transaction = self._number

    def rules_due(self, command: TappedCommand, rules: list[TapRule]) -> list[DueRule]:
        """The rules that are due at the reply to this command. Rules of queued commands are due at EXEC."""
        due = [DueRule(rule, command) for rule in rules]
        number = command.transaction
        if number is None:
            return due
        if _is_queued(command):
            self._due.setdefault(number, []).extend(due)
            return []
        queued = self._due.pop(number, []) if command.name != "MULTI" else []
        return queued + due if command.name == "EXEC" else due

    def answered(self, command: TappedCommand, raw: bytes) -> list[TappedCommand]:
        """The commands whose result this reply contains."""
        number = command.transaction
        if number is None:
            return [command]
        if _is_queued(command):
            # No result yet: the reply to EXEC contains it.
            if raw.startswith(b"+QUEUED"):
                return []
            self.not_sent(command)
            return [command]
        if command.name == "MULTI":
            return [command]
        queued = self._queued.pop(number, [])
        if command.name == "EXEC":
            _distribute_results(queued, raw)
        else:
            for queued_command in queued:
                queued_command.fate = "discarded"
        return [*queued, command]

    def not_sent(self, command: TappedCommand) -> None:
        """Record that Redis will not get this command, so that EXEC has no result for it."""
        if command.transaction is not None and command.transaction in self._queued:
            queued = self._queued[command.transaction]
            self._queued[command.transaction] = [other for other in queued if other is not command]


def has_run(command: TappedCommand) -> bool:
    """Whether a command was executed: Redis knew its script, and EXEC was not aborted."""
    return (
        command.fate == "answered" and command.answer is not None and not command.answer.head.startswith(b"-NOSCRIPT")
    )


def _is_queued(command: TappedCommand) -> bool:
    return command.transaction is not None and command.name not in {"MULTI", "EXEC", "DISCARD", "RESET"}


def _distribute_results(queued: list[TappedCommand], raw: bytes) -> None:
    """Give every queued command its part of the reply to EXEC, or the whole reply if the transaction was aborted."""
    results = value_of(decode(raw)).items
    for index, command in enumerate(queued):
        if results is not None and index < len(results):
            command.answered(encode(results[index]))
        else:
            # EXEC returned nil (WATCH) or an error (EXECABORT): none of the commands ran.
            command.answered(raw, "discarded")
