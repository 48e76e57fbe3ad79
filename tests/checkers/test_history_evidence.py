"""Invariants about what a fault leaves behind, and about how much must have been seen: ok, violated, unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.checkers.histories.base import CheckResult
from conformance.checkers.histories.evidence import CALLS_AFTER_HEALING, ENTRIES_AFTER_HEALING
from conformance.checkers.histories.history import (
    EventReported,
    Fail,
    HandleChange,
    HandleChanged,
    History,
    HistoryBounds,
    HistoryHeader,
    HistoryLine,
    Invoke,
    MachineStarved,
    Ok,
    ResourceSample,
    RunEnded,
    RunStarted,
    ScriptLine,
    StartLimit,
    in_order,
)
from conformance.checkers.histories.history_checks import ALL_CHECKS, check_history
from conformance.checkers.histories.renewals import ANSWERS_MEANWHILE
from tests.checkers.history_builders import END, added, completed_life, event, fault, judged, quiescent, ran, script

BOUNDS: dict[str, Any] = {"lock_ms": 2000, "worker_concurrency": 2}
MIB = 2**20


def fully_judged(check: str, lines: list[HistoryLine], **bounds: Any) -> CheckResult:
    """The verdict of a check on a history that must be full evidence."""
    header = HistoryHeader(bounds=HistoryBounds(**{**BOUNDS, **bounds}), evidence="full")
    found = check_history(History(header, in_order(lines)), None)
    return next(result for result in found if result.check == check)


def messages(result: CheckResult) -> str:
    return "; ".join(finding.message for finding in result.findings)


def run(start: float, end: float | None, job: str = "1", process: str = "w", name: str = "") -> list[HistoryLine]:
    """A processor that was called, and ended unless `end` is None."""
    about = {"process": process, "queue": "q", "job": job, "name": name or f"n{job}", "token": f"t{job}-{start:g}"}
    lines: list[HistoryLine] = [RunStarted(at_ms=start, **about)]
    return lines if end is None else [*lines, RunEnded(at_ms=end, outcome="complete", **about)]


def handle(at: float, change: HandleChange, role: str = "worker", process: str = "w") -> HandleChanged:
    return HandleChanged(at_ms=at, process=process, role=role, queue="q", change=change, error="why")


def renewal(at: float, job: str = "1", process: str = "w") -> ScriptLine:
    return ScriptLine(at_ms=at + 1, sent_ms=at, process=process, script="extendLocks", queue="q", jobs=[job])


def call(at: float, number: int, *, fails: bool = False, process: str = "p", **args: Any) -> list[HistoryLine]:
    invoke = Invoke(at_ms=at, process=process, call=number, op="queue.add", args={"queue": "q", **args})
    if fails:
        return [invoke, Fail(at_ms=at + 1, process=process, call=number, error="no")]
    return [invoke, Ok(at_ms=at + 1, process=process, call=number)]


# How much has to be seen.


@pytest.mark.parametrize("check", [check.name for check in ALL_CHECKS])
def test_a_check_without_evidence_is_unknown(check: str) -> None:
    assert fully_judged(check, [quiescent()]).verdict == "unknown"


def test_too_little_is_unknown_and_says_how_much_was_needed() -> None:
    result = fully_judged("rate", completed_life(), limits={"q": StartLimit(most=5, duration_ms=200)})
    assert result.verdict == "unknown"
    assert result.reasons == ("only 1 examined, 10 are needed", "only 0 windows at the limit, 2 are needed")
    assert judged("rate", completed_life(), limits={"q": StartLimit(most=5, duration_ms=200)}).verdict == "ok"


def test_a_limit_that_was_reached_is_evidence() -> None:
    starts = [event(at, "active", str(at), order=at) for window in (100, 500) for at in range(window, window + 5)]
    assert fully_judged("rate", [*starts], limits={"q": StartLimit(most=5, duration_ms=200)}).verdict == "ok"


def test_the_page_says_what_each_invariant_must_have_seen() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "faults.md").read_text("utf-8")
    rows = {row.split("`")[1]: row.rsplit("|", 2)[1].strip() for row in page.splitlines() if row.startswith("| `")}
    assert {check.name: rows.get(check.name) for check in ALL_CHECKS} == {
        check.name: check.demands for check in ALL_CHECKS
    }


# Outcomes.


def test_a_job_is_completed_after_a_run_that_ended_so() -> None:
    assert judged("outcomes", completed_life()).verdict == "ok"


def test_a_job_that_is_completed_before_its_run_has_ended() -> None:
    life = [*added(10), event(20, "active", prev="waiting"), event(21, "completed"), *ran(22, 30)]
    assert "no run had ended" in messages(judged("outcomes", life))


def test_a_job_that_is_completed_although_its_run_failed() -> None:
    life = [*added(10), event(20, "active"), *ran(21, 25, "fail"), event(30, "completed")]
    assert "its runs had ended as: fail" in messages(judged("outcomes", life))


def test_a_job_that_fails_permanently_with_attempts_left() -> None:
    life = [*added(10, attempts=3), event(20, "active"), *ran(21, 25, "fail"), event(30, "failed")]
    assert "after 1 of 3 attempts" in messages(judged("outcomes", life))
    assert judged("outcomes", [*added(10), *life[3:]]).verdict == "ok"


def test_a_result_that_redis_refused_is_a_failure() -> None:
    life = [*added(10), event(20, "active"), *ran(21, 25), event(30, "failed")]
    assert "its run had ended well" in messages(judged("outcomes", life))
    assert judged("outcomes", [*life, *fault(24, 28, "redis.oom")]).verdict == "ok"


# Real concurrency.


def test_a_worker_runs_as_many_jobs_as_it_may() -> None:
    full = [*run(10, 100, "1"), *run(20, 90, "2"), *run(100, 120, "3")]
    assert judged("worker-concurrency", full, **BOUNDS).verdict == "ok"
    assert judged("worker-concurrency", full, **BOUNDS).facts == {"most at a time": 2}


def test_a_worker_that_runs_more_jobs_than_it_may() -> None:
    crowd = [*run(10, 100, "1"), *run(20, 90, "2"), *run(30, 40, "3")]
    assert "runs 3 jobs at a time, allowed are 2" in messages(judged("worker-concurrency", crowd, **BOUNDS))
    assert judged("worker-concurrency", [*crowd, handle(25, "opened")], **BOUNDS).verdict == "ok"


def test_a_worker_that_was_never_at_its_limit_proves_nothing() -> None:
    alone = [line for number in range(30) for line in run(number * 10, number * 10 + 5, str(number))]
    assert "moments at the limit" in fully_judged("worker-concurrency", alone).reasons[0]


# Renewals.


def test_a_lock_that_is_renewed_every_half_of_its_life() -> None:
    lines = [*run(0, 4000), *(renewal(at) for at in (1000, 2000, 3000))]
    assert fully_judged("renewals", lines).verdict == "ok"
    assert fully_judged("renewals", lines[:-1]).verdict == "unknown"


@pytest.mark.parametrize("renewed", [(), (1000, 2000), (1800, 3600)])
def test_a_lock_that_is_left_alone_for_too_long(renewed: tuple[float, ...]) -> None:
    lines = [*run(0, 4000), renewal(3999, process="other"), *(renewal(at) for at in renewed)]
    assert "did not renew the lock" in messages(judged("renewals", lines, **BOUNDS))


def test_a_client_that_was_cut_off_or_starved_owes_no_renewals() -> None:
    late = [*run(0, 4000), *(renewal(at) for at in (1000, 2900, 3500))]
    assert judged("renewals", late, **BOUNDS).verdict == "fail"
    assert judged("renewals", [*late, *fault(1500, 2800, "network.outage-all")], **BOUNDS).verdict == "ok"
    assert judged("renewals", [*late, MachineStarved(since_ms=1500, at_ms=2500)], **BOUNDS).verdict == "ok"
    waited = ResourceSample(at_ms=2500, waited_ms={"w": 600.0})
    assert judged("renewals", [*late, waited], **BOUNDS).verdict == "ok"


def test_the_end_of_an_older_run_ends_the_renewal_of_the_newer_one_as_in_node() -> None:
    """Job 1 stalls at 3000 and runs again in the same worker, at 4300 the older run ends, at 6500 it stalls again."""
    life = [*added(1), event(2, "active"), event(2999, "waiting", prev="active"), event(2999, "stalled", order=1)]
    life += [*fault(1000, 1100), event(3000, "active"), *run(3000, 7300, name="a"), renewal(3900), renewal(7299, "9")]
    again = [*life, event(6500, "waiting", prev="active"), event(6500, "stalled", order=1)]
    older = run(10, 4300, name="a")
    for check in ("renewals", "duplicate-runs"):
        assert judged(check, again, **BOUNDS).verdict == "fail"
        assert judged(check, [*again, *older], **BOUNDS).verdict == "ok"


def test_a_worker_that_learns_that_the_lock_is_gone_has_tried() -> None:
    """All locks expire while Redis stands still; until the second stalled check the job stays with its worker."""
    about: dict[str, Any] = {"process": "w", "script": "extendLocks", "queue": "q"}
    refused = [ScriptLine(at_ms=at + 1, sent_ms=at, refused=["1"], **about) for at in (7100, 8100)]
    life = [*run(0, 9000), *(renewal(at) for at in (1000, 2000)), *fault(2500, 7000, "redis.freeze-past-locks")]
    heard = [renewal(at, "9") for at in (7050, 8998)]
    assert judged("renewals", [*life, *heard, *refused], **BOUNDS).verdict == "ok"
    assert "did not renew the lock" in messages(judged("renewals", [*life, *heard], **BOUNDS))
    assert "locks renewed three times" in fully_judged("renewals", [*life, *heard, *refused]).reasons[0]


def recovered_elsewhere() -> list[HistoryLine]:
    """Job 1 lost its lock to an eviction, stalled, and is claimed again (at 2990) by the worker that still runs it.

    The kit notes the end of the older run at 2980, and the worker hears of it when it renews the lock for the newer.
    """
    life = [*added(1, name="n1"), event(2, "active"), *fault(1000, 1100, "evict.volatile-ttl"), *run(10, 2980)]
    life += [event(2900, "waiting", prev="active"), event(2900, "stalled", order=1), event(2990, "active")]
    life += [script(2991, "moveToActive", "t1-3000"), *run(3000, 7300), renewal(7299, "9")]
    return [*life, event(6500, "waiting", prev="active"), event(6500, "stalled", order=1)]


def test_a_worker_may_hear_late_of_the_end_of_an_older_run() -> None:
    """Its refused finish comes after the new claim: whose lock it renews then is not the judge's to say."""
    refused = script(4000, "moveToFinished", "t1-10", code=-6)
    early = [line for line in recovered_elsewhere() if not (isinstance(line, RunEnded) and line.at_ms == 2980)]
    for check in ("renewals", "duplicate-runs"):
        assert judged(check, [*recovered_elsewhere(), refused], **BOUNDS).verdict == "ok"
        assert judged(check, [*early, *run(10, 2700)[1:], refused], **BOUNDS).verdict == "ok"


def test_a_worker_that_renews_nothing_is_found_although_locks_were_evicted() -> None:
    """It learned of the end of the older run long before it claimed the job again, so that this explains nothing."""
    early = [line for line in recovered_elsewhere() if not (isinstance(line, RunEnded) and line.at_ms == 2980)]
    for lines in (early, [*early, *run(10, 2700)[1:], script(2702, "moveToFinished", "t1-10", code=-6)]):
        assert "did not renew the lock" in messages(judged("renewals", lines, **BOUNDS))
        assert "stalled, although no fault" in messages(judged("duplicate-runs", lines, **BOUNDS))


def test_a_start_about_the_end_of_a_window_may_open_the_next() -> None:
    """Redis 7.0 reports it at the time of XADD, and counts from the time of PEXPIRE: 20 ms may pass in between."""
    limit = {"q": StartLimit(most=2, duration_ms=100)}

    def starts(*times: float) -> list[HistoryLine]:
        return [event(at, "active", str(at)) for at in times]

    assert judged("rate", starts(0, 100, 150, 160), limits=limit).verdict == "ok"
    assert judged("rate", starts(0, 100, 150, 160, 170), limits=limit).verdict == "fail"
    assert judged("rate", starts(0, 99, 100, 150), limits=limit).verdict == "ok"
    assert judged("rate", starts(0, 50, 81), limits=limit).verdict == "ok"
    assert judged("rate", starts(0, 50, 79), limits=limit).verdict == "fail"
    assert judged("rate", starts(0, 50, 119, 121), limits=limit).verdict == "ok"
    starved = MachineStarved(since_ms=20, at_ms=40)
    assert judged("rate", [*starts(0, 50, 79), starved], limits=limit).verdict == "ok"


def test_renewals_that_stop_after_a_reconnect() -> None:
    """The process is heard of soon after the healing, and its lock is not renewed although others are."""
    heard = ScriptLine(at_ms=1700, sent_ms=1699, process="w", script="moveToActive", queue="q")
    end = ScriptLine(at_ms=4000, sent_ms=3999, process="w", script="moveToFinished", queue="q", job="1")
    lines = [*run(0, 4000), renewal(1000), *fault(1500, 1600, "redis.client-kill"), heard, end]
    assert "2300 ms" in messages(judged("renewals", lines, **BOUNDS))


def left_locks(*, answers: int, locks: int = 2) -> list[HistoryLine]:
    """Jobs of 4 s with unrenewed locks, by a worker that continues to claim and to finish others."""
    runs = [line for job in range(locks) for line in run(10 + job, 4000, str(job))]
    calls = [ScriptLine(at_ms=1500 + at, process="w", script="moveToFinished", queue="other") for at in range(answers)]
    waited = ResourceSample(at_ms=3000, waited_ms={"w": 1500.0, "redis": 1500.0})
    return [*runs, *calls, waited, renewal(4500, "9", process="v")]


def test_a_busy_machine_does_not_explain_missing_renewals_of_an_active_client() -> None:
    assert "let 2 locks of q expire and renewed none since" in messages(
        judged("renewals", left_locks(answers=ANSWERS_MEANWHILE), **BOUNDS)
    )


def test_a_busy_machine_may_explain_locks_that_are_left_alone() -> None:
    """One lock is chance, who is not heard of may not be let run, and who renews another one does renew."""
    enough = left_locks(answers=ANSWERS_MEANWHILE)
    for lines in (
        left_locks(answers=ANSWERS_MEANWHILE - 1),
        left_locks(answers=ANSWERS_MEANWHILE, locks=1),
        [*enough, renewal(3900, "7")],
        [*enough, *fault(2500, 3000, "redis.client-kill")],
    ):
        assert judged("renewals", lines, **BOUNDS).verdict == "ok"


def late_renewals(*, answers: int, times: tuple[float, ...] = (1700, 3400, 5100)) -> list[HistoryLine]:
    """A job of 6 s whose lock is renewed at some times, by a worker that goes on with others, on a busy machine."""
    calls = [
        ScriptLine(at_ms=since + 1401 + at, process="w", script="moveToFinished", queue="other")
        for since in (0, *times[:-1])
        for at in range(answers)
    ]
    waited = [ResourceSample(at_ms=at, waited_ms={"w": 1500.0, "redis": 1500.0}) for at in (1000, 3000, 5000)]
    return [*run(0, 6000), *(renewal(at) for at in times), *calls, *waited]


def test_a_busy_machine_does_not_explain_renewals_that_are_always_late() -> None:
    assert "renewed locks of q 3 times and never sooner than after 1700 ms of the 2000 ms" in messages(
        judged("renewals", late_renewals(answers=ANSWERS_MEANWHILE), **BOUNDS)
    )


def test_a_wait_cut_by_a_fault_and_a_late_report_of_a_run_excuse_no_late_renewals() -> None:
    """The machine stands still from 5,200 to 5,400 ms, and the job that starts at 10 was claimed 400 ms before."""
    late = late_renewals(answers=ANSWERS_MEANWHILE, times=(1700, 3400, 5100, 5900))
    cut = [*late, MachineStarved(since_ms=5200, at_ms=5400)]
    assert "4 times" not in messages(judged("renewals", cut, **BOUNDS))
    assert "3 times and never sooner" in messages(judged("renewals", cut, **BOUNDS))
    reported_late = late_renewals(answers=ANSWERS_MEANWHILE, times=(1300, 3000, 4700))
    claim = script(-390, "moveToActive", "t")
    assert judged("renewals", reported_late, **BOUNDS).verdict == "ok"
    assert "3 times and never sooner" in messages(judged("renewals", [claim, *reported_late], **BOUNDS))


@pytest.mark.parametrize(
    "lines",
    [
        late_renewals(answers=1),
        late_renewals(answers=ANSWERS_MEANWHILE, times=(1700, 3400)),
        late_renewals(answers=ANSWERS_MEANWHILE, times=(1700, 3400, 5100, 5600)),
    ],
)
def test_a_busy_machine_may_explain_renewals_that_are_late(lines: list[HistoryLine]) -> None:
    """Who is not heard of may not be let run, two are few, and who renewed once in time knows when it is due."""
    assert judged("renewals", lines, **BOUNDS).verdict == "ok"


# Recovery.


def test_producers_and_workers_are_heard_of_after_the_last_fault() -> None:
    calls = [line for number in range(CALLS_AFTER_HEALING) for line in call(7000 + number, number)]
    opened = [handle(0, "opened"), handle(0, "opened", process="v")]
    healed = fault(100, 200, "redis.client-kill")
    alive = [*run(7000, 7010), *run(7000, 7010, "2", process="v")]
    assert fully_judged("recovery", [*healed, *calls, *opened, *alive]).verdict == "ok"
    assert fully_judged("recovery", [*healed, *calls[:6], *opened, *alive]).verdict == "unknown"


def test_a_producer_whose_every_call_fails() -> None:
    refused = [line for number in range(20) for line in call(number * 10, number, fails=True)]
    assert "20 of 20 calls failed: no" in messages(judged("recovery", refused))


def test_a_producer_that_is_dead_after_its_first_lost_connection() -> None:
    before = call(10, 99)
    dead = [line for number in range(20) for line in call(7000 + number, number, fails=True)]
    assert judged("recovery", [*before, *fault(100, 200, "redis.client-kill"), *dead]).verdict == "fail"


def test_a_producer_of_whose_calls_one_kind_fails() -> None:
    some = [line for number in range(40) for line in call(10 * number, number, fails=number % 3 == 0)]
    few = [line for number in range(40) for line in call(10 * number, number, fails=number % 20 == 0)]
    assert "14 of 40 calls failed" in messages(judged("recovery", some))
    assert judged("recovery", few).verdict == "ok"


def test_no_worker_gets_a_job_although_many_were_added() -> None:
    jobs = [line for number in range(80) for line in added(7000 + number, str(number), f"j{number}")]
    found = judged("recovery", [handle(0, "opened"), *fault(100, 200, "redis.oom"), *jobs])
    assert "w got no job of q after the last fault, the others got 0 of 80" in messages(found)


@pytest.mark.parametrize(("last_run", "verdict"), [(210, "fail"), (7100, "ok")])
def test_a_job_that_was_asked_for_before_the_fault_is_not_a_sign_of_life(last_run: int, verdict: str) -> None:
    jobs = [line for number in range(80) for line in added(7000 + number, str(number), f"j{number}")]
    alive = run(last_run, last_run + 10)
    found = judged("recovery", [handle(0, "opened"), *fault(100, 200, "redis.script-flush"), *alive, *jobs])
    assert found.verdict == verdict
    assert ("w got no job of q after the last fault, the others got 0 of 80" in messages(found)) is (verdict == "fail")


def test_a_client_need_not_recover_an_operation_that_it_lacks() -> None:
    absent: list[HistoryLine] = [
        line
        for number in range(20)
        for line in (
            Invoke(at_ms=number, process="p", call=number, op="flow.add"),
            Fail(at_ms=number, process="p", call=number, unsupported=True),
        )
    ]
    assert judged("recovery", absent).verdict == "ok"


def test_a_worker_that_gets_nothing_while_the_others_get_everything() -> None:
    opened = [handle(0, "opened"), handle(0, "opened", process="v")]
    others = [line for number in range(80) for line in run(7000 + number, 7001 + number, str(number), process="v")]
    assert "w got no job of q after the last fault, the others got 80 of 0" in messages(
        judged("recovery", [*opened, *others])
    )
    starved = MachineStarved(since_ms=7000, at_ms=7500)
    assert judged("recovery", [*opened, *others, starved]).verdict == "unknown"
    for_a_moment = MachineStarved(since_ms=7000, at_ms=7010)
    assert judged("recovery", [*opened, *others, for_a_moment]).verdict == "fail"


@pytest.mark.parametrize(("starved_ms", "verdict"), [(8000, "unknown"), (6500, "fail")])
def test_a_machine_that_starves_for_a_while_excuses_no_worker_that_it_lets_run_for_seconds(
    starved_ms: float, verdict: str
) -> None:
    jobs = [line for number in range(101) for line in added(7000 + 100 * number, str(number), f"j{number}")]
    starved = MachineStarved(since_ms=8000, at_ms=8000 + starved_ms)
    lines = [handle(0, "opened"), *fault(100, 200, "redis.oom"), *jobs, starved]
    assert judged("recovery", lines).verdict == verdict


# Closing.


def test_a_worker_that_ends_its_jobs_and_takes_no_more() -> None:
    lines = [*run(90, 150), handle(100, "closing"), handle(160, "closed"), handle(200, "opened"), *run(210, 220, "2")]
    assert fully_judged("closing", lines).verdict == "ok"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([*run(90, 250), handle(160, "closed")], "still ran 1"),
        ([*run(90, 150), handle(160, "closed"), *run(170, 180, "2")], "took 1 jobs afterwards"),
        ([*run(90, 150), handle(9000, "not-closed")], "did not end within 8900 ms: why"),
    ],
)
def test_a_close_that_does_not_close(lines: list[HistoryLine], said: str) -> None:
    assert said in messages(judged("closing", [handle(100, "closing"), *lines]))


def test_a_worker_that_goes_on_claiming_while_it_closes() -> None:
    claim = ScriptLine(at_ms=1500, sent_ms=1400, process="w", script="moveToActive", queue="q", claimed="2")
    lines: list[HistoryLine] = [handle(100, "closing"), claim, handle(2000, "closed")]
    assert "more than a second later" in messages(judged("closing", lines))


def test_a_close_during_a_fault_or_with_empty_hands_proves_nothing() -> None:
    hanging: list[HistoryLine] = [handle(100, "closing"), handle(9000, "not-closed")]
    assert judged("closing", [*hanging, *fault(50, 8000)]).verdict == "unknown"
    starved = MachineStarved(since_ms=200, at_ms=8900)
    assert judged("closing", [*hanging, starved]).verdict == "unknown"
    busy_elsewhere = [line for number in range(60) for line in run(6000 + number, 6001 + number, str(number))]
    assert judged("closing", [*hanging, starved, *busy_elsewhere]).verdict == "fail"
    idle: list[HistoryLine] = [handle(100, "closing"), handle(110, "closed")]
    assert fully_judged("closing", idle).reasons == ("only 0 closes with jobs in hand, 1 are needed",)


# Event readers.


def stream(*entries: int, reader: str = "w", leave_out: tuple[int, ...] = ()) -> list[HistoryLine]:
    """Entries of the stream, and the reports of a reader a little later."""
    reports = [entry for entry in entries if entry not in leave_out]
    return [
        *(event(entry, "waiting", str(entry)) for entry in entries),
        *(
            EventReported(at_ms=entry + 5, process=reader, queue="q", entry=f"{entry}-0", name="waiting")
            for entry in reports
        ),
    ]


READER = handle(0, "opened", role="events")


def test_a_reader_that_reports_everything() -> None:
    everything = stream(*range(100, 100 + 10 * ENTRIES_AFTER_HEALING, 10))
    assert fully_judged("event-readers", [READER, *everything]).verdict == "ok"
    assert fully_judged("event-readers", [READER, *everything[:-5]]).verdict == "unknown"


def test_a_reader_that_leaves_out_what_came_while_it_was_away() -> None:
    lines = [READER, *stream(100, 110, 120, 130, leave_out=(110, 120))]
    assert "left out 2 entries, first waiting of job 110" in messages(judged("event-readers", lines))


def test_a_reader_that_was_opened_again_is_judged_for_each_time() -> None:
    first, again = stream(100, 110, 120, leave_out=(110,)), stream(200, 210, 220, leave_out=(210,))
    between = stream(150, leave_out=(150,))
    lines = [READER, *first, *between, handle(190, "opened", role="events"), *again]
    found = messages(judged("event-readers", lines))
    assert [number for number in (110, 150, 210) if f"first waiting of job {number}" in found] == [110, 210]


def test_a_reader_that_has_fallen_silent() -> None:
    lines = [READER, *stream(100, 110, 120, leave_out=(120,)), quiescent(9000)]
    assert judged("event-readers", lines).verdict == "fail"
    starved = MachineStarved(since_ms=5000, at_ms=6000)
    assert judged("event-readers", [*lines, starved]).verdict == "unknown"


def test_a_reader_that_starts_again_or_goes_back() -> None:
    again = EventReported(at_ms=400, process="w", queue="q", entry="100-0", name="waiting")
    assert "(100-0) twice" in messages(judged("event-readers", [READER, *stream(100, 110), again]))
    early = EventReported(at_ms=400, process="w", queue="q", entry="105-0", name="waiting")
    assert "after a later entry" in messages(judged("event-readers", [READER, *stream(100, 110), early]))


def test_a_reader_need_not_report_events_that_a_fault_may_have_lost() -> None:
    lost = fault(105, 125, "redis.flushall", lost_since_ms=0)
    assert judged("event-readers", [READER, *stream(100, 110, 130, leave_out=(110,)), *lost]).verdict == "ok"


def test_a_client_without_event_readers_is_not_asked() -> None:
    result = fully_judged("event-readers", [handle(0, "absent", role="events")])
    assert (result.verdict, result.applicable) == ("unknown", False)


# Connections and memory.


def test_a_client_that_forgets_asking_is_found() -> None:
    def bounces(times: int, error: str) -> list[HistoryLine]:
        return [
            script(100 + 10 * number + step, "moveStalledJobsToWait", "", "", error=answer)
            for number in range(times)
            for step, answer in enumerate(("ASK 7 127.0.0.1:2", error))
        ]

    moved = "MOVED 7 127.0.0.1:1"
    assert messages(judged("connections", bounces(3, moved))) == (
        "w sent 3 commands after ASK without ASKING, and the other node refused them"
    )
    over = "MOVED 7 127.0.0.1:2"  # the migration has ended meanwhile
    alone: list[HistoryLine] = [script(9, "extendLocks", "t", error=moved)]
    # redis-py repeats after TRYAGAIN at the other node, and after many redirections gives up for a while.
    attempts = [
        script(1000 + number, "extendLocks", "t", error=answer)
        for number, answer in enumerate(("ASK 7 127.0.0.1:2", "TRYAGAIN", moved) * 9)
    ]
    gave_up = [*attempts, *bounces(5, moved)]
    for fine in (bounces(2, moved), bounces(9, over), bounces(9, "TRYAGAIN"), bounces(9, ""), alone, gave_up):
        assert not judged("connections", fine).findings


def test_connections_before_and_after() -> None:
    before, window = ResourceSample(at_ms=1, connections={"w": 10, "v": 9}), fault(10, 20)
    same, leaked = ({"w": 15, "v": 13}, {"w": 17, "v": 9})  # half of them more is not a leak
    assert fully_judged("connections", [before, *window, ResourceSample(at_ms=99, connections=same)]).verdict == "ok"
    found = judged("connections", [before, *window, ResourceSample(at_ms=99, connections=leaked)])
    assert messages(found) == "w has 17 connections open, before the first fault it had 10"
    assert fully_judged("connections", [before, *window]).verdict == "unknown"
    few = [ResourceSample(at_ms=1, connections={"w": 1}), *window]
    for connections, leaks in ((3, False), (4, True)):
        after = ResourceSample(at_ms=99, connections={"w": connections})
        assert bool(judged("connections", [*few, after]).findings) is leaks


def test_a_pool_may_open_one_connection_more_for_each_queue() -> None:
    """As that of the official Python client does with the first `addBulk` of each queue handle."""
    queues = [event(2, "added", queue=name) for name in ("main", "limited", "narrow", "long")]
    before, window = ResourceSample(at_ms=1, connections={"p": 7}), fault(10, 20)
    for now, verdict in ((11, "ok"), (12, "fail")):
        after = ResourceSample(at_ms=99, connections={"p": now})
        assert judged("connections", [before, *queues, *window, after]).verdict == verdict


def test_and_one_for_the_handle_that_adds_flows() -> None:
    """The official Python client holds 6 at first, 11 after a bulk of each queue and a flow, and never more."""
    queues = [event(2, "added", queue=name) for name in ("main", "limited", "narrow", "long")]
    before, window = ResourceSample(at_ms=1, connections={"p": 6}), fault(10, 20)
    flow: list[HistoryLine] = [Invoke(at_ms=3, process="p", call=1, op="flow.add"), Ok(at_ms=4, process="p", call=1)]
    for calls, now, verdict in ((flow, 11, "ok"), (flow, 12, "fail"), ([], 11, "fail")):
        after = ResourceSample(at_ms=99, connections={"p": now})
        assert judged("connections", [before, *queues, *calls, *window, after]).verdict == verdict


def test_memory_that_grows_all_the_time() -> None:
    def samples(count: int, step: int) -> list[HistoryLine]:
        return [ResourceSample(at_ms=at, memory={"w": (50 + step * at) * MIB}) for at in range(count)]

    assert fully_judged("memory", samples(30, 0)).verdict == "ok"
    assert fully_judged("memory", samples(10, 0)).verdict == "unknown"
    assert "MiB to" in messages(judged("memory", samples(30, 10)))


# Deduplication, schedulers, flows, back-offs.


def test_one_job_of_an_id_at_a_time() -> None:
    asked = [line for number in (1, 2, 3) for line in call(number * 10, number, deduplication="d")]
    first = [event(11, "added", "1", name="d"), event(50, "completed", "1"), event(60, "added", "2", name="d")]
    assert fully_judged("deduplication", [*asked, *first]).verdict == "ok"
    both = [event(11, "added", "1", name="d"), event(21, "added", "2", name="d")]
    assert "job 1 of the same id (d) was not done" in messages(judged("deduplication", [*asked, *both]))
    lost = fault(5, 15, "replica.kill-primary", lost_since_ms=8)
    assert judged("deduplication", [*asked, *both, *lost]).verdict == "ok"
    assert fully_judged("deduplication", asked[:2]).verdict == "unknown"


def test_a_scheduler_runs_as_often_as_it_may() -> None:
    asked = call(10, 1, scheduler="s", times=2)
    ticks = [
        line
        for number in ("1", "2")
        for line in (
            event(20, "added", f"repeat:s:{number}", name="s"),
            event(30, "completed", f"repeat:s:{number}"),
        )
    ]
    assert fully_judged("schedules", [*asked, *ticks, quiescent()]).verdict == "ok"
    assert "has run 1 times instead of 2" in messages(judged("schedules", [*asked, *ticks[:2], quiescent()]))
    lost = fault(40, 50, "redis.flushall", lost_since_ms=0)
    assert judged("schedules", [*asked, *ticks[:2], *lost, quiescent()]).verdict == "ok"


def test_half_a_flow() -> None:
    parent, child = added(10, "1", "a"), added(10, "2", "b")
    wanted = [planned for line in (parent[0], child[0]) if isinstance(line, Invoke) for planned in line.jobs]
    flow = Invoke(at_ms=5, process="p", call=9, op="flow.add", jobs=wanted)
    whole: list[HistoryLine] = [flow, Ok(at_ms=15, process="p", call=9, ids={"a": "1", "b": "2"}), parent[1], child[1]]
    assert judged("indeterminate", whole, END).verdict == "ok"
    assert "1 of the 2 jobs of a flow were added: a" in messages(judged("indeterminate", [flow, parent[1]]))
    refused = fault(1, 20, "redis.oom")
    assert judged("indeterminate", [flow, parent[1], *refused]).verdict == "ok"


def test_a_retry_before_its_back_off_has_passed() -> None:
    options: dict[str, Any] = {"attempts": 3, "backoff_ms": 100}
    tried = [*added(10, **options), event(11, "waiting"), event(20, "active"), *ran(21, 30, "fail")]
    assert "tried again 80 ms before its back-off of 100 ms" in messages(judged("timing", [*tried, *ran(50, 60)]))
    assert judged("timing", [*tried, *ran(131, 140)]).verdict == "ok"
