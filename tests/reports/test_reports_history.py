from __future__ import annotations

from collections import defaultdict

from conformance.checkers.histories.history import History, in_order
from conformance.checkers.histories.history_checks import check_history
from conformance.checkers.histories.lines import Header, Line, Phase, Script
from reports.history.judging import CHECKS, DECOMPOSABLE, judge
from reports.history.pieces import pieces_of, shared_lines
from tests.checkers.history_builders import added, completed_life, event, fault, quiescent, ran, script


def bad_history() -> History:
    """Ten good lives, a job that runs twice, one that is ended by somebody else, and one that is promoted early."""
    lines: list[Line] = [
        line for number in range(10) for line in completed_life(10 + number, str(number), f"n{number}")
    ]
    lines += [*completed_life(100, "20", "twice"), *ran(150, 160, job="20", name="twice")]
    lines += [event(155, "active", "20", prev="waiting")]
    lines += [*added(200, "30", "stolen"), event(201, "waiting", "30"), event(202, "active", "30", prev="waiting")]
    lines += [script(202, "moveToActive", "t1", "30"), script(210, "moveToFinished", "t2", "30")]
    lines += [event(211, "completed", "30", prev="active", returnvalue="null")]
    lines += [*added(300, "40", "early", delay_ms=5000), event(301, "delayed", "40", delay="5301")]
    lines += [event(400, "waiting", "40", prev="delayed")]
    lines += [*fault(800, 900, "net.reset"), quiescent()]
    return History(Header(), in_order(lines))


def test_the_checks_say_of_each_job_what_they_say_of_all_of_them() -> None:
    history = bad_history()
    whole = {
        (judgement.check, finding.job, finding.message)
        for judgement in check_history(history)
        for finding in judgement.findings
        if judgement.check in DECOMPOSABLE
    }
    assert {check for check, _, _ in whole} >= {"duplicate-runs", "tokens", "timing"}
    names = {piece.job: piece.name for line in history.lines for piece in pieces_of(line) if piece.job and piece.name}
    jobs: defaultdict[str, list[Line]] = defaultdict(list)
    for line in history.lines:
        for piece in pieces_of(line):
            jobs[piece.name or names[piece.job]].append(piece.line)
    shared = shared_lines(history.lines)
    alone = {row[:3] for own in jobs.values() for row in judge(history.header, shared, own)}
    assert alone == whole


def test_a_line_about_several_jobs_names_one_at_a_time() -> None:
    line = Script(at_ms=1, process="w", script="x", queue="q", job="1", claimed="2", jobs=["2", "3"])
    pieces = {piece.job: piece.line for piece in pieces_of(line)}
    assert set(pieces) == {"1", "2", "3"}
    first, second = pieces["1"], pieces["2"]
    assert isinstance(first, Script)
    assert isinstance(second, Script)
    assert (first.job, first.claimed, first.jobs) == ("1", "", [])
    assert (second.job, second.claimed, second.jobs) == ("", "2", ["2"])


def test_shared_lines_belong_to_no_job() -> None:
    assert shared_lines(bad_history().lines)
    assert list(pieces_of(Phase(at_ms=1, name="drain"))) == []
    assert {check.name for check in CHECKS} == set(DECOMPOSABLE)
