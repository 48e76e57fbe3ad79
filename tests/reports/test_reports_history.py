from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from conformance.checkers.histories.history import History, HistoryHeader, HistoryLine, RunPhase, ScriptLine, in_order
from conformance.checkers.histories.history_checks import check_history
from conformance.observe.tables import Snapshot
from reports.history import CHECKS, DECOMPOSABLE, is_shared, job_lines, judge_jobs
from tests.checkers.history_builders import added, completed_life, end_state, event, fault, quiescent, ran, script


def bad_history() -> History:
    """Ten good lives, a job that runs twice, one that another worker ends, and one that is promoted early."""
    lines: list[HistoryLine] = [
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
    return History(HistoryHeader(), in_order(lines))


def bad_end() -> Snapshot:
    """The store after it: a good job is gone, one is there twice, one is in no state, and one has a wrong counter."""
    lives = [f"{number}=n{number}" for number in range(10) if number != 3]
    end = end_state(*lives, "20=twice", "30=stolen", "40=early", "99=n5")
    jobs = [row if row.id != "6" else replace(row, fields={**row.fields, "ats": "9"}) for row in end.jobs]
    members = [row for row in end.memberships if row.job != "4"]
    return replace(end, jobs=tuple(jobs), memberships=tuple(members))


def said_of_all(history: History, end: Snapshot | None) -> set[tuple[str, str, str]]:
    """Findings of the checks for single jobs when they check all jobs at once."""
    return {
        (judgement.check, finding.job, finding.message)
        for judgement in check_history(history, end)
        for finding in judgement.findings
        if judgement.check in DECOMPOSABLE
    }


def part_of(end: Snapshot, own: set[str], name: str) -> Snapshot:
    """The part of a snapshot about one job."""
    jobs = tuple(row for row in end.jobs if row.id in own or row.fields["name"] == name)
    ids = own | {row.id for row in jobs}
    return replace(end, jobs=jobs, memberships=tuple(row for row in end.memberships if row.job in ids))


@pytest.mark.parametrize("end", [None, bad_end()], ids=["without snapshot", "with snapshot"])
def test_the_checks_say_of_each_job_what_they_say_of_all_of_them(end: Snapshot | None) -> None:
    history = bad_history()
    whole = said_of_all(history, end)
    expected = {"duplicate-runs", "tokens", "timing"}
    expected |= {"durability", "conservation", "counters", "indeterminate", "events"} if end else set()
    assert {check for check, _, _ in whole} >= expected
    names = {
        own_line.job: own_line.name
        for line in history.lines
        for own_line in job_lines(line)
        if own_line.job and own_line.name
    }
    jobs: defaultdict[str, list[HistoryLine]] = defaultdict(list)
    for line in history.lines:
        for own_line in job_lines(line):
            jobs[own_line.name or names[own_line.job]].append(own_line.line)
    shared = [line for line in history.lines if is_shared(line)]
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for job, name in names.items():
        ids[name].add(job)
    alone = {
        row[:3]
        for name, own in jobs.items()
        for row in judge_jobs(history.header, shared, own, end and part_of(end, ids[name], name))
    }
    assert alone == whole


def test_a_line_about_several_jobs_names_one_at_a_time() -> None:
    line = ScriptLine(at_ms=1, process="w", script="x", queue="q", job="1", claimed="2", jobs=["2", "3"])
    own_lines = {own_line.job: own_line.line for own_line in job_lines(line)}
    assert set(own_lines) == {"1", "2", "3"}
    first, second = own_lines["1"], own_lines["2"]
    assert isinstance(first, ScriptLine)
    assert isinstance(second, ScriptLine)
    assert (first.job, first.claimed, first.jobs) == ("1", "", [])
    assert (second.job, second.claimed, second.jobs) == ("", "2", ["2"])


def test_shared_lines_belong_to_no_job() -> None:
    assert any(is_shared(line) for line in bad_history().lines)
    assert list(job_lines(RunPhase(at_ms=1, name="drain"))) == []
    assert {check.name for check in CHECKS} == set(DECOMPOSABLE)
