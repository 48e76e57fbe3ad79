"""Which commands belong to which MULTI of a connection, and what EXEC says about each of them."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.observe.tap.flight import Flight
from conformance.observe.tap.resp import decode, encode, value_of
from conformance.observe.tap.rules import Rule


@dataclass(frozen=True, slots=True)
class Due:
    """A rule whose action is due when `flight` has run."""

    rule: Rule
    flight: Flight


class Transactions:
    """The transactions of one connection, numbered from 1."""

    def __init__(self) -> None:
        self._number = 0
        self._open = False
        self._queued: dict[int, list[Flight]] = {}
        self._due: dict[int, list[Due]] = {}

    def arrived(self, flight: Flight) -> None:
        """Note to which transaction a new command belongs."""
        if self._open:
            flight.transaction = self._number
            if flight.name in {"EXEC", "DISCARD", "RESET"}:
                self._open = False
            elif flight.args and flight.name != "MULTI":
                self._queued[self._number].append(flight)
        elif flight.name == "MULTI":
            self._open = True
            self._number += 1
            self._queued[self._number] = []
            flight.transaction = self._number

    def rules_due(self, flight: Flight, rules: list[Rule]) -> list[Due]:
        """The rules that are due when the reply to this command comes: those of queued commands are at EXEC."""
        due = [Due(rule, flight) for rule in rules]
        number = flight.transaction
        if number is None:
            return due
        if _is_queued(flight):
            self._due.setdefault(number, []).extend(due)
            return []
        queued = self._due.pop(number, []) if flight.name != "MULTI" else []
        return queued + due if flight.name == "EXEC" else due

    def answered(self, flight: Flight, raw: bytes) -> list[Flight]:
        """The commands whose result is known by this reply, each with its part of it."""
        number = flight.transaction
        if number is None:
            return [flight]
        if _is_queued(flight):
            if raw.startswith(b"+QUEUED"):
                return []
            self.not_sent(flight)
            return [flight]
        if flight.name == "MULTI":
            return [flight]
        queued = self._queued.pop(number, [])
        if flight.name == "EXEC":
            _share_out(queued, raw)
        for each in queued:
            each.fate = each.fate if flight.name == "EXEC" else "discarded"
        return [*queued, flight]

    def not_sent(self, flight: Flight) -> None:
        """Redis will never see this command: EXEC has no result for it."""
        if flight.transaction is not None and flight.transaction in self._queued:
            queued = self._queued[flight.transaction]
            self._queued[flight.transaction] = [each for each in queued if each is not flight]


def has_run(flight: Flight) -> bool:
    """Whether a command has been executed: Redis knew the script, and EXEC was not aborted."""
    return flight.fate == "answered" and flight.answer is not None and not flight.answer.head.startswith(b"-NOSCRIPT")


def _is_queued(flight: Flight) -> bool:
    return flight.transaction is not None and flight.name not in {"MULTI", "EXEC", "DISCARD", "RESET"}


def _share_out(queued: list[Flight], raw: bytes) -> None:
    """Give every queued command its part of the reply to EXEC, or all of it when it says that nothing ran."""
    results = value_of(decode(raw)).items
    for index, flight in enumerate(queued):
        if results is not None and index < len(results):
            flight.answered(encode(results[index]))
        else:
            flight.answered(raw, "discarded")
