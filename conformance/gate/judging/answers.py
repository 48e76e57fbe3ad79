"""Comparing what two participants answered, call by call."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from conformance.gate.expect import shown
from conformance.gate.participants.participant import Participant
from conformance.gate.participants.transcript import Answer
from conformance.gate.run.records import Finding
from conformance.observe.compare.values import same_json
from conformance.observe.tables import parsed_json

TIMES = frozenset({"timestamp", "processed_on", "finished_on", "next", "start_date", "end_date", "offset", "prevTS"})
"""Fields of answers that hold the client's own time: compared only when both clocks are frozen."""

UNSET: tuple[Any, ...] = (None, 0, "", {}, [])
"""Where one client says null and another zero or nothing, both say the same."""


def compare_answers(oracle: Participant, client: Participant, requirement: str) -> list[Finding]:
    """One finding per place in which an answer differs from the oracle's. Own prefixes are equal by definition."""
    exact = oracle.clock.frozen and client.clock.frozen
    findings = []
    for number, (theirs, ours) in enumerate(zip_longest(oracle.transcript.answers, client.transcript.answers), start=1):
        if theirs is None or ours is None:
            break  # one of them stopped half-way: the reason is a finding of its own
        expected, actual = _plain(theirs, oracle.prefix), _plain(ours, client.prefix)
        for where, wanted, got in _differences(f"answer.{theirs.op}", expected, actual, exact=exact):
            message = f"call {number}, {theirs.op}: {where.removeprefix(f'answer.{theirs.op}')[1:] or 'answer'} differs"
            findings.append(
                Finding(
                    requirement=requirement,
                    source="answer",
                    kind="wrong-answer",
                    severity="wrong-behaviour",
                    where=where,
                    key="",
                    expected=shown(wanted),
                    actual=shown(got),
                    message=message,
                )
            )
    return findings


def _plain(answer: Answer, prefix: str) -> Any:
    return _without_prefix({"outcome": answer.outcome, **(answer.value or {})}, prefix.strip("{}"))


def _without_prefix(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "<prefix>")
    if isinstance(value, dict):
        return {_without_prefix(key, prefix): _without_prefix(item, prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_prefix(item, prefix) for item in value]
    return value


def _differences(where: str, expected: Any, actual: Any, *, exact: bool) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in {**expected, **actual}:
            if name in TIMES and not exact:
                continue
            yield from _differences(f"{where}.{name}", expected.get(name), actual.get(name), exact=exact)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for wanted, got in zip(expected, actual, strict=True):
            yield from _differences(where, wanted, got, exact=exact)
    elif (
        expected != actual and not (expected in UNSET and actual in UNSET) and not _same_value(where, expected, actual)
    ):
        yield where, expected, actual


def _same_value(where: str, expected: Any, actual: Any) -> bool:
    """Whether two JSON texts of a driver say the same. How it spells them is no matter: Redis shows what was stored."""
    if not (where.endswith("_raw") and isinstance(expected, str) and isinstance(actual, str)):
        return False
    value = parsed_json(expected)
    return value is not None and same_json(value, parsed_json(actual))
