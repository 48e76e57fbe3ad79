"""Every check over a history, and the file that a history is kept in."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.checkers.histories.end_state import permanently_waiting
from conformance.checkers.histories.history import (
    History,
    HistoryBounds,
    HistoryHeader,
    HistoryLine,
    Ok,
    RunPhase,
    StartLimit,
    StreamEventLine,
    decode_history,
    in_order,
)
from conformance.checkers.histories.history_checks import ALL_CHECKS, check_history
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem
from tests.checkers.history_builders import (
    END,
    added,
    completed_life,
    end_state,
    event,
    fault,
    info,
    judged,
    quiescent,
    ran,
    script,
)
from tests.observe import snapshot_builders
from tests.observe.snapshot_builders import ADDED, Zset


def test_a_plain_run_passes_every_check() -> None:
    lines = [*completed_life(), script(20, "moveToActive", "t21"), script(29.5, "moveToFinished", "t21"), quiescent()]
    for result in check_history(History(HistoryHeader(), in_order(lines)), END):
        assert result.verdict == "ok", result


def test_without_a_snapshot_the_end_is_unknown() -> None:
    unknown = {result.check for result in check_history(History(HistoryHeader(), ())) if result.verdict == "unknown"}
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
    assert len({check.name for check in ALL_CHECKS}) == len(ALL_CHECKS) == 26


def test_a_history_survives_its_file() -> None:
    history = History(
        HistoryHeader(client="c", bounds=HistoryBounds(lock_ms=1)), in_order([*completed_life(), *fault(1, 2)])
    )
    assert decode_history(history.encoded().splitlines()) == history


def test_a_history_that_broke_off() -> None:
    rows = History(HistoryHeader(), in_order(completed_life())).encoded().splitlines()
    broken = decode_history([*rows[:-2], rows[-2][:10]])
    assert not broken.complete
    assert len(broken.lines) == len(rows) - 3


@pytest.mark.parametrize("rows", [[b"{}"], [b'{"type":"footer","at_ms":1,"lines":0}'], [b"nonsense", b"{}"]])
def test_an_invalid_history_is_refused(rows: list[bytes]) -> None:
    with pytest.raises(UsageProblem):
        decode_history(rows)


def test_cost_grows_with_the_length_and_not_faster() -> None:
    def seconds(jobs: int) -> float:
        lines: list[HistoryLine] = [quiescent(jobs * 50.0)]
        for number in range(1, jobs + 1):
            lines += completed_life(number * 40.0, str(number), f"j{number}")
        lines += fault(5, 6)
        history = History(HistoryHeader(), in_order(lines))
        snapshot = end_state(*(f"{number}=j{number}" for number in range(1, jobs + 1)))
        started = time.process_time()
        results = check_history(history, snapshot)
        assert all(result.verdict != "fail" for result in results), results
        return time.process_time() - started

    few = min(seconds(250) for _ in range(3))
    many = min(seconds(1000) for _ in range(3))
    assert many < 12 * few  # four times as long; a quadratic check would be at 16


def test_conservation() -> None:
    twice = snapshot_builders.snapshot(
        {"q:1": snapshot_builders.job(name="a"), "q:wait": ["1"], "q:completed": Zset({"1": 1.0})}
    )
    nowhere = snapshot_builders.snapshot({"q:1": snapshot_builders.job(name="a")})
    assert judged("conservation", completed_life(), END).verdict == "ok"
    assert "wait and completed" in judged("conservation", completed_life(), twice).findings[0].message
    assert "in no state" in judged("conservation", completed_life(), nowhere).findings[0].message


def test_queues_that_never_came_to_rest_are_not_judged_by_their_end() -> None:
    """A job that moves while the keys are read may be seen in two states, or in none."""
    twice = snapshot_builders.snapshot(
        {"q:1": snapshot_builders.job(name="a"), "q:wait": ["1"], "q:completed": Zset({"1": 1.0})}
    )
    for check in ("conservation", "orphans"):
        at_rest = judged(check, [*completed_life(), quiescent()], twice)
        stuck = RunPhase(at_ms=9000, name="stuck", seen="wait 1")
        moving = judged(check, [*completed_life(), event(8000, "waiting", "2"), stuck], twice)
        assert moving.verdict == "unknown"
        assert "never came to rest" in moving.reasons[0]
        assert at_rest.verdict == "fail"
        # Work that is stuck stands still as well.
        assert judged(check, [*completed_life(), stuck], twice).verdict == "fail"


def test_durability() -> None:
    nothing = snapshot_builders.snapshot({})
    gone = judged("durability", completed_life(), nothing)
    assert gone.findings[0].message == "acknowledged by queue.add, and gone"
    assert judged("durability", completed_life(kept=False), nothing).verdict == "ok"


@pytest.mark.parametrize(("since", "verdict"), [(0, "ok"), (29, "ok"), (31, "fail")])
def test_durability_allows_what_the_fault_may_lose(since: float, verdict: str) -> None:
    """The last that is known of the job is at 30 ms."""
    lines = [*completed_life(), *fault(40, 50, "redis.kill", lost_since_ms=since)]
    found = judged("durability", lines, snapshot_builders.snapshot({}))
    assert found.verdict == verdict
    assert found.facts["lost"] == (verdict == "ok")


def test_indeterminate() -> None:
    once = [*info(10), event(10, "added", name="a")]
    twice = [*once, event(11, "added", "2", name="a")]
    assert judged("indeterminate", info(10)).verdict == "ok"
    assert judged("indeterminate", once).verdict == "ok"
    assert "there are 2 such jobs" in judged("indeterminate", twice).findings[0].message
    assert judged("indeterminate", completed_life(), end_state("1=a", "2=a")).verdict == "fail"


def test_after_eviction_key_by_key_only_progress_and_the_client_itself_are_judged() -> None:
    """The counter of ids is gone, and job 1 is still there: a new job gets its id and runs in its place."""
    both = snapshot_builders.snapshot(
        {"q:1": snapshot_builders.job(name="a"), "q:failed": Zset({"1": 1.0}), "q:completed": Zset({"1": 2.0})}
    )
    lines = [*completed_life(), *fault(40, 50, "evict.allkeys-lru", lost_since_ms=0, torn=True)]
    lines += [*added(60, name="b"), event(61, "waiting"), quiescent()]
    verdicts = {
        result.check: result.verdict for result in check_history(History(HistoryHeader(), in_order(lines)), both)
    }
    assert {verdicts.pop(check) for check in ("progress", "recovery", "connections", "memory")} == {"ok"}
    assert set(verdicts.values()) == {"unknown"}
    stands_still = [*added(30), event(31, "waiting"), *fault(40, 50, "evict.allkeys-lru", lost_since_ms=0, torn=True)]
    assert judged("progress", [*stands_still, quiescent()], both).verdict == "fail"


def test_markers_at_rest() -> None:
    waiting = snapshot_builders.snapshot({"q:1": snapshot_builders.job(name="a"), "q:wait": ["1"], "q:id": "1"})
    assert "base-marker" in judged("markers", [], waiting).findings[0].message
    assert judged("markers", [], END).verdict == "ok"


@pytest.mark.parametrize(("bullmq", "broken"), [("5.62.0", ["paused-list"]), ("6.7.0", [])])
def test_the_invariants_at_the_end_are_those_of_the_oracles_version(bullmq: str, broken: list[str]) -> None:
    """BullMQ 6 leaves the jobs of a paused queue in `wait`."""
    paused = {"q:1": snapshot_builders.job(name="a"), "q:wait": ["1"], "q:id": "1", "q:meta": {"paused": "1"}}
    results = check_history(History(HistoryHeader(bullmq=bullmq), ()), snapshot_builders.snapshot(paused))
    found = [finding.message.partition(":")[0] for result in results for finding in result.findings]
    assert [name for name in found if name == "paused-list"] == broken


def test_orphans_at_rest() -> None:
    locked = snapshot_builders.snapshot({"q:1:lock": "t1"}, ttls={"q:1:lock": 100})
    active = end_state("1=a", container="active")
    assert "no such job" in judged("orphans", [], locked).findings[0].message
    still = [quiescent()]
    assert judged("orphans", still, active).findings[-1].message == "still in active"
    assert all(finding.message != "still in active" for finding in judged("orphans", [], active).findings)
    assert judged("orphans", still, END).verdict == "ok"


def family(container: str, **more: Any) -> Snapshot:
    """A parent that waits for the child 2, which is in this container."""
    child = snapshot_builders.job(
        name="b", parentKey="p:q:1", processedOn=str(ADDED), finishedOn=str(ADDED), ats="1", atm="1"
    )
    finished: Any = Zset({"2": float(ADDED)}) if container != "active" else ["2"]
    keys = {"q:1": snapshot_builders.job(name="a"), "q:2": child, "q:1:dependencies": {"p:q:2"}, "q:id": "9"}
    return snapshot_builders.snapshot(
        {**keys, "q:waiting-children": Zset({"1": float(ADDED)}), f"q:{container}": finished, **more}
    )


def test_a_parent_of_a_failed_child_waits_permanently() -> None:
    assert permanently_waiting(family("failed")) == {("q", "1")}
    for not_so in (family("active"), family("failed", **{"q:1:dependencies": {"p:q:2", "p:q:3"}})):
        assert permanently_waiting(not_so) == frozenset()
    said = {finding.message for finding in judged("orphans", [quiescent()], family("failed")).findings}
    assert "still in waiting-children" not in said
    said = {finding.message for finding in judged("orphans", [quiescent()], family("active")).findings}
    assert "still in waiting-children" in said


@pytest.mark.parametrize(("ended", "verdict"), [(9000, "ok"), (4000, "fail")])
def test_a_claim_that_a_fault_has_held_up_may_carry_an_older_time(ended: float, verdict: str) -> None:
    """The job lasts 10 s, its claim started at 5 s."""
    early = end_state("1=a", timestamp=str(ADDED), processedOn=str(ADDED - 5000), finishedOn=str(ADDED))
    lines = [*completed_life(), *fault(3000, ended, "cluster.kill-primary"), quiescent(11_000)]
    assert judged("orphans", lines, early, offset=ADDED - 10_000).verdict == verdict


@pytest.mark.parametrize(("started", "verdict"), [(12_000, "ok"), (7000, "fail")])
def test_a_fault_at_another_time_of_a_job_excuses_no_times_out_of_order(started: float, verdict: str) -> None:
    """The job was added at 6 s, finished at 10 s, and activated at 15 s."""
    odd = end_state("1=a", timestamp=str(ADDED - 4000), processedOn=str(ADDED + 5000), finishedOn=str(ADDED))
    lines = [*completed_life(), *fault(started, started + 1000, "cluster.kill-primary"), quiescent(16_000)]
    assert judged("orphans", lines, odd, offset=ADDED - 10_000).verdict == verdict


def test_a_worker_that_ends_a_job_of_before_a_loss_does_not_mix_up_the_job_with_its_id() -> None:
    """Seen under FLUSHALL: ids restart, and the old run with the same id ends while the new job is active."""
    before = [*added(10, name="old"), *ran(11, 135, name="old")]
    life = [line for line in completed_life(120, name="new") if not isinstance(line, Ok)]
    lines = [*before, *fault(50, 60, "redis.flushall", lost_since_ms=0), *life, quiescent()]
    result = judged("events", lines, end_state("1=new"))
    assert (result.verdict, result.examined) == ("ok", 1)
    unfinished = [line for line in lines if not (isinstance(line, StreamEventLine) and line.name == "completed")]
    assert "last event is `active`" in judged("events", unfinished, end_state("1=new")).findings[0].message


def test_a_second_run_needs_a_reason() -> None:
    retried = [
        *added(10),
        event(10, "waiting", order=1),
        event(20, "active"),
        *ran(21, 25, "fail"),
        event(26, "waiting", prev="active"),
        event(30, "active"),
        *ran(31, 35),
        event(36, "completed"),
    ]
    unreasonable = [line for line in retried if getattr(line, "outcome", "") != "fail"]
    assert judged("duplicate-runs", retried).verdict == "ok"
    assert "neither failed nor stalled" in judged("duplicate-runs", unreasonable).findings[0].message


def test_a_stall_needs_a_fault() -> None:
    stalled = [
        *added(10),
        event(10, "waiting", order=1),
        event(20, "active"),
        event(3000, "waiting", prev="active"),
        event(3000, "stalled", order=1),
        event(3010, "active"),
    ]
    assert "no fault" in judged("duplicate-runs", stalled).findings[0].message
    assert judged("duplicate-runs", [*stalled, *fault(100, 200)]).verdict == "ok"
    assert judged("duplicate-runs", [*stalled, *fault(3100, 3200)]).verdict == "fail"


def test_more_runs_than_claims() -> None:
    lines = [*completed_life(), *ran(40, 50)]
    assert "2 runs started" in judged("duplicate-runs", lines).findings[0].message


def test_a_stale_token_changes_nothing() -> None:
    claims = [script(20, "moveToActive", "t1"), script(40, "moveToActive", "t2")]
    late = script(50, "moveToFinished", "t1")
    refused = script(50, "moveToFinished", "t1", code=-2)
    crossing = script(50, "moveToFinished", "t1", sent_ms=39)
    own = script(60, "moveToFinished", "t2")
    life = added(10)
    assert judged("tokens", [*life, *claims, refused, own]).verdict == "ok"
    assert "of t1 was accepted" in judged("tokens", [*life, *claims, late, own]).findings[0].message
    assert judged("tokens", [*life, *claims, crossing]).verdict == "ok"


def test_an_end_without_a_call() -> None:
    lines = [*added(10), script(20, "moveToActive", "t1"), event(30, "completed", returnvalue='{"token": "t1"}')]
    refused = script(29, "moveToFinished", "t1", code=-2)
    unanswered = script(29, "moveToFinished", "t1", fate="lost")
    foreign = script(29, "moveToFinished", "t2")
    assert "0 calls" in judged("tokens", [*lines, refused]).findings[0].message
    assert judged("tokens", [*lines, unanswered]).verdict == "ok"
    assert "the value is that of t1" in judged("tokens", [*lines, foreign]).findings[-1].message


@pytest.mark.parametrize("field", ["ats", "atm", "stc"])
def test_counters(field: str) -> None:
    assert judged("counters", completed_life(), END).verdict == "ok"
    found = judged("counters", completed_life(), end_state("1=a", **{field: "7"}))
    assert found.findings[0].message.startswith(f"{field} is 7")


def test_events_describe_a_possible_life() -> None:
    assert judged("events", completed_life(), END).verdict == "ok"
    again = [*completed_life(), event(50, "active", prev="waiting")]
    assert "`active` of a job that is completed" in judged("events", again).findings[0].message
    lone = [*added(10), event(10, "waiting", order=1), event(11, "stalled")]
    assert "without a return" in judged("events", lone).findings[0].message
    wrong = [*added(10), event(10, "waiting", order=1, prev="failed")]
    assert "from failed, and the job was added" in judged("events", wrong).findings[0].message


def test_events_agree_with_the_end() -> None:
    elsewhere = end_state("1=a", container="failed", failedReason="x")
    assert "and the job is in failed" in judged("events", completed_life(), elsewhere).findings[0].message


def _family(*lines: HistoryLine) -> list[HistoryLine]:
    return [
        *added(10, "1", "parent"),
        event(10, "waiting-children", order=1),
        *added(11, "2", "child", parent="parent"),
        event(11, "waiting", "2", order=1),
        event(20, "active", "2"),
        *lines,
    ]


def test_parents_wait_for_their_children() -> None:
    ended = event(30, "completed", "2")
    release = event(30, "waiting", prev="waiting-children", order=1)
    fine = judged("parents", _family(ended, release))
    assert (fine.verdict, fine.applicable) == ("ok", True)
    early = event(25, "waiting", prev="waiting-children")
    assert "before its 1 children" in judged("parents", _family(early, ended)).findings[0].message
    again = event(40, "waiting", prev="waiting-children")
    [twice] = judged("parents", _family(ended, release, again)).findings
    assert "2 times" in twice.message
    assert twice.lines == (release, ended, again)
    assert "still waits" in judged("parents", _family(ended)).findings[0].message
    lossy = [*_family(ended), *fault(25, 35, "redis.kill", lost_since_ms=20)]
    assert judged("parents", lossy).examined == 0


def _delayed(promoted: float, due: float = 1010, **options: float) -> list[HistoryLine]:
    return [
        *added(10, delay_ms=1000),
        event(10, "delayed", order=1, delay=str(due + options.get("offset", 0))),
        event(promoted, "waiting", prev="delayed"),
    ]


@pytest.mark.parametrize(("promoted", "verdict"), [(1010, "ok"), (1005, "fail"), (1500, "ok"), (7000, "fail")])
def test_nothing_early_and_lateness_bounded(promoted: float, verdict: str) -> None:
    assert judged("timing", _delayed(promoted)).verdict == verdict


def test_due_before_the_delay_has_passed() -> None:
    assert "before its delay" in judged("timing", _delayed(1010, due=500)).findings[0].message


def test_a_fault_excuses_lateness_and_a_skewed_clock_both() -> None:
    assert judged("timing", [*_delayed(9000), *fault(900, 8000)]).verdict == "ok"
    assert judged("timing", [*_delayed(900), *fault(5, 2000, "clock.skew", skew_ms=-500)]).verdict == "ok"
    assert judged("timing", [*_delayed(400), *fault(5, 2000, "clock.skew", skew_ms=-500)]).verdict == "fail"


def test_work_goes_on_after_a_fault() -> None:
    waiting = [*added(10), event(10, "waiting", order=1), *fault(100, 2000, "redis.stop")]
    soon = [event(2500, "active"), event(2600, "completed"), quiescent()]
    late = [event(7500, "active"), event(7600, "completed"), quiescent(8000)]
    found = judged("progress", [*waiting, *soon])
    assert found.verdict == "ok"
    assert found.facts["resumed after (ms)"] == 500
    assert "work went on after: 5500 ms" in judged("progress", [*waiting, *late]).findings[0].message
    assert judged("progress", [*waiting, *late], resume_ms=6000).verdict == "ok"
    assert judged("progress", waiting).verdict == "fail"


def test_work_that_is_left_undone() -> None:
    stuck = RunPhase(at_ms=9000, name="stuck", seen="wait 3")
    assert judged("progress", [*completed_life(), stuck]).findings[0].message == "work was left undone: wait 3"


def _claims(*jobs: str, **options: object) -> list[HistoryLine]:
    lines: list[HistoryLine] = []
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


def _starts(*times: float) -> list[HistoryLine]:
    return [event(at, "active", str(number)) for number, at in enumerate(times)]


def test_rate_in_every_window() -> None:
    limits = {"q": StartLimit(most=2, duration_ms=100)}
    assert judged("rate", _starts(0, 50, 100, 150), limits=limits).verdict == "ok"
    [crowd] = judged("rate", _starts(0, 50, 79), limits=limits).findings
    assert "3 starts within 79 ms" in crowd.message
    assert (crowd.job, crowd.lines) == ("q:2", tuple(_starts(0, 50, 79)))
    for name, verdict in {"redis.kill": "ok", "evict.limiter": "ok", "network.reset": "fail"}.items():
        assert judged("rate", [*_starts(0, 50, 79), *fault(60, 70, name)], limits=limits).verdict == verdict
    assert judged("rate", _starts(0, 1, 2)).examined == 0


def test_concurrency_at_every_moment() -> None:
    two = [*_starts(0, 1), event(2, "completed", "0"), event(3, "active", "5")]
    found = judged("concurrency", two, concurrency={"q": 2})
    assert found.verdict == "ok"
    assert found.facts["most at a time"] == 2
    assert "3 jobs are active" in judged("concurrency", _starts(0, 1, 2), concurrency={"q": 2}).findings[0].message
    lossy = [*fault(1.5, 50, "redis.flushall", lost_since_ms=0), *_starts(0, 1, 2)]
    assert judged("concurrency", lossy, concurrency={"q": 2}).verdict == "unknown"
