"""All checks over one history, the file that it is kept in, and what checking costs."""

from __future__ import annotations

import time

import pytest

from conformance.checkers.histories.history import History, decode_history, in_order
from conformance.checkers.histories.history_checks import ALL_CHECKS, check_history
from conformance.checkers.histories.lines import Bounds, Header, Line
from conformance.problems import UsageProblem
from tests.checkers.history_builders import (
    END,
    completed_life,
    end_state,
    fault,
    quiescent,
    script,
)


def test_a_plain_run_passes_every_check() -> None:
    lines = [*completed_life(), script(20, "moveToActive", "t21"), script(29.5, "moveToFinished", "t21"), quiescent()]
    for judgement in check_history(History(Header(), in_order(lines)), END):
        assert judgement.verdict == "ok", judgement


def test_without_a_snapshot_the_end_is_unknown() -> None:
    unknown = {each.check for each in check_history(History(Header(), ())) if each.verdict == "unknown"}
    assert unknown == {
        "conservation",
        "durability",
        "counters",
        "tokens",
        "progress",
        "events",
        "markers",
        "orphans",
    }


def test_every_check_says_what_it_is_about() -> None:
    assert all(check.doc.endswith(".") for check in ALL_CHECKS)
    assert len({check.name for check in ALL_CHECKS}) == len(ALL_CHECKS) == 15


def test_a_history_survives_its_file() -> None:
    history = History(Header(client="c", bounds=Bounds(lock_ms=1)), in_order([*completed_life(), *fault(1, 2)]))
    assert decode_history(history.encoded().splitlines()) == history


def test_a_history_that_broke_off() -> None:
    rows = History(Header(), in_order(completed_life())).encoded().splitlines()
    broken = decode_history([*rows[:-2], rows[-2][:10]])
    assert not broken.complete
    assert len(broken.lines) == len(rows) - 3


@pytest.mark.parametrize("rows", [[b"{}"], [b'{"type":"footer","at_ms":1,"lines":0}'], [b"nonsense", b"{}"]])
def test_what_is_no_history(rows: list[bytes]) -> None:
    with pytest.raises(UsageProblem):
        decode_history(rows)


def test_cost_grows_with_the_length_and_not_faster() -> None:
    def seconds(jobs: int) -> float:
        lines: list[Line] = [quiescent(jobs * 50.0)]
        for number in range(1, jobs + 1):
            lines += completed_life(number * 40.0, str(number), f"j{number}")
        lines += fault(5, 6)
        history = History(Header(), in_order(lines))
        snapshot = end_state(*(f"{number}=j{number}" for number in range(1, jobs + 1)))
        begun = time.process_time()
        judgements = check_history(history, snapshot)
        assert all(judgement.verdict != "fail" for judgement in judgements), judgements
        return time.process_time() - begun

    few = min(seconds(250) for _ in range(3))
    many = min(seconds(1000) for _ in range(3))
    assert many < 12 * few  # four times as long; a quadratic check would be at 16
