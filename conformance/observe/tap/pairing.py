"""Which reply answers which command, on one connection.

Redis answers in order, one frame per command, with these exceptions: pushes of RESP3 and messages of RESP2
subscriptions answer nothing; (un)subscribing is confirmed once per channel, in RESP3 by pushes; after MONITOR come
lines that nobody asked for; CLIENT REPLY switches replies off; empty commands have none.
"""

from __future__ import annotations

import re
from collections import deque

from conformance.observe.tap.flight import Flight
from conformance.observe.tap.resp import decode, plain

_SUBSCRIBING = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"})
_UNSUBSCRIBING = frozenset({"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"})
_CONFIRMED = _SUBSCRIBING | _UNSUBSCRIBING
_MESSAGES = frozenset({b"message", b"pmessage", b"smessage"})
_FIRST_WORD = re.compile(rb"[*>]\d+\r\n(?:\$\d+\r\n|\+)([a-z]+)\r\n")
_MONITOR_LINE = re.compile(rb"\+\d+\.\d+ \[")
_PUSH, _ARRAY, _ERROR, _LINE = b">*-+"


class Pairing:
    """The commands that wait for replies. `switched_off`: CLIENT REPLY OFF is in force."""

    def __init__(self) -> None:
        self.awaited: deque[Flight] = deque()
        self.switched_off = False
        self._skip_next = False
        self._monitoring = False
        self._channels: dict[str, set[bytes]] = {name: set() for name in _SUBSCRIBING}
        self._special = False

    def sent(self, flight: Flight) -> bool:
        """Note that a command goes to Redis; whether a reply will come."""
        if self._is_silent(flight):
            return False
        if flight.name in _CONFIRMED or flight.name in {"MONITOR", "RESET"}:
            self._special = True
        self.awaited.append(flight)
        return True

    def pair(self, raw: bytes) -> tuple[Flight | None, bool]:
        """The command that a reply belongs to (None: to no command), and whether it is the last one for it."""
        if self._special or raw[0] == _PUSH:
            return self._pair_special(raw)
        return (self.awaited.popleft(), True) if self.awaited else (None, False)

    def _is_silent(self, flight: Flight) -> bool:
        args = flight.args
        if not args:
            return True
        skipped, self._skip_next = self._skip_next, False
        if flight.name == "CLIENT" and len(args) > 2 and args[1].upper() == b"REPLY":
            mode = args[2].upper()
            self.switched_off = mode == b"OFF" or (self.switched_off and mode != b"ON")
            self._skip_next = mode == b"SKIP"
            return mode in {b"OFF", b"SKIP"}
        return skipped or self.switched_off

    def _pair_special(self, raw: bytes) -> tuple[Flight | None, bool]:
        """Pair on a connection that has subscribed, or that monitors."""
        word = _first_word(raw)
        if raw[0] == _ARRAY and word in _MESSAGES and any(self._channels.values()):
            return None, False
        if self._monitoring and raw[0] == _LINE and _MONITOR_LINE.match(raw):
            return None, False
        head = self.awaited[0] if self.awaited else None
        if head is not None and head.name in _CONFIRMED and raw[0] != _ERROR:
            if word.decode("ascii").upper() != head.name:
                return None, False
            return self._confirm(head, raw)
        if head is None or raw[0] == _PUSH:
            return None, False
        self._monitoring = head.name == "MONITOR" or (self._monitoring and head.name != "RESET")
        if head.name == "RESET":
            self._channels = {name: set() for name in _SUBSCRIBING}
        return self.awaited.popleft(), True

    def _confirm(self, head: Flight, raw: bytes) -> tuple[Flight, bool]:
        """One channel of an (un)subscription is confirmed; without channels all are, or there is one confirmation."""
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
