"""The documented order of jobs, and what breaks it."""

from __future__ import annotations

from conformance.checkers.histories.lines import Line
from tests.checkers.history_builders import (
    added,
    event,
    judged,
)


def _claims(*jobs: str, **options: object) -> list[Line]:
    lines: list[Line] = []
    for number, job in enumerate("123", 1):
        chosen = {name: value[number - 1] for name, value in options.items()}  # type: ignore[index]
        lines += [*added(number * 10, job, f"j{job}", **chosen), event(number * 10, "waiting", job, order=1)]
    return [*lines, *(event(100 + number, "active", job) for number, job in enumerate(jobs))]


def test_order_is_first_in_first_out() -> None:
    assert judged("order", _claims("1", "2", "3")).verdict == "ok"
    assert "before it came 1" in judged("order", _claims("2", "1", "3")).findings[0].message


def test_order_of_lifo_and_priorities() -> None:
    assert judged("order", _claims("2", "1", "3", lifo=(False, True, False))).verdict == "ok"
    assert judged("order", _claims("1", "2", "3", lifo=(False, True, False))).verdict == "fail"
    assert judged("order", _claims("3", "2", "1", priority=(5, 5, 0))).verdict == "fail"
    assert judged("order", _claims("3", "1", "2", priority=(5, 5, 0))).verdict == "ok"
    assert judged("order", _claims("1", "3", "2", priority=(5, 5, 0))).verdict == "fail"


def test_a_recovered_job_runs_next() -> None:
    recovered = [event(102, "waiting", "1", prev="active"), event(102, "stalled", "1", order=1)]
    lines = [*_claims("1"), *recovered]
    assert judged("order", [*lines, event(110, "active", "1"), event(111, "active", "2")]).verdict == "ok"
    assert judged("order", [*lines, event(110, "active", "2"), event(111, "active", "1")]).verdict == "fail"
