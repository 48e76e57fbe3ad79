"""A client that can do little, and one thing of that wrongly: exactly the row about that fails, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from conformance.environment.clients import Launch, find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.environment.starvation import StarvationWatch
from conformance.gate.bench import Bench
from conformance.gate.records import Verdict
from conformance.gate.repetition import MOST_REPEATS, explains
from conformance.gate.trial import run_trial
from conformance.gate.verdicts import requirement_verdicts, unblamed
from conformance.ledger.loader import load_ledger
from conformance.mutants.matrix import ScenarioCase, all_cases
from conformance.reference_impl.jobs.record import JobRecord
from conformance.reference_impl.scripts import move
from conformance.servers import RedisInstance

from .limited_in_process import LimitedDriver

ADDS_ONLY = ["--only", "queue.add", "--capabilities", "clock"]
PRODUCES = [
    "--only",
    "queue.add,queue.addBulk,queue.pause,queue.resume,queue.getJob",
    "--capabilities",
    "",
    "--bare-jobs",
]
CLAIMS_NOTHING = ["--hang", "worker.getNextJob"]
Verdicts = dict[Verdict, dict[str, set[str]]]
"""Rows by verdict, each with the scenarios in which it has that."""


Tried = Callable[..., Verdicts]


@pytest.fixture
def tried(server: RedisInstance) -> Iterator[Tried]:
    """Runs cases with a limited client; returns the verdicts of the rows."""
    with ExitStack() as stack:
        oracle = RestartableDriver(find_toolchain("", lambda _line: None).oracle, seed=0)

        def run_cases(cases: list[ScenarioCase], limits: list[str], *filters: tuple[str, str]) -> Verdicts:
            client = LimitedDriver(Launch("limited", []), 0, limits=tuple(limits), filters=filters)
            bench = Bench(server, oracle, client)
            stack.callback(bench.close)
            redis = stack.enter_context(server.connect())
            watch = stack.enter_context(StarvationWatch(bench.processes, redis.ping))
            verdicts: Verdicts = {}
            for case in cases:
                for row, verdict in _rows(case, bench, watch).items():
                    verdicts.setdefault(verdict, {}).setdefault(row, set()).add(case.id)
            return verdicts

        yield run_cases


def _rows(case: ScenarioCase, bench: Bench, watch: StarvationWatch) -> Mapping[str, Verdict]:
    """The verdicts on the rows of a case; as in the gate, it is retried if the machine was starved."""
    for _ in range(1 + MOST_REPEATS):
        watch.start()
        evidence = run_trial(case.scenario, case.arguments, bench, load_ledger())
        found = requirement_verdicts(
            case.scenario.requirements, evidence.findings, load_ledger(), unblamed=unblamed(evidence)
        )
        doubtful = evidence.error or "fail" in found.values()
        if not (doubtful and explains(watch.seen().worst, frozen=False)):
            break
    assert not evidence.error, (case.id, evidence.error)
    return found


def cases(*areas: str) -> list[ScenarioCase]:
    """One case of each quick scenario of these areas."""
    found = {case.id: case for case in reversed(all_cases()) if case.id.split("/")[0] in areas}
    return [case for case in reversed(found.values()) if not (case.scenario.slow or case.scenario.needs)]


ADDING = cases("add")
READING = [case for case in cases("getters") if "getters.job.fields" in case.scenario.requirements]
SECONDS = """local place = at(command, "timestamp")
if command[1] == "HMSET" and place then change(command, "timestamp", math.floor(command[place] / 1000)) end"""
"""Lua: the script stores the timestamp of a job in seconds."""
GHOST = """if command[1] == "LPUSH" and on(command, "wait") then
    local key = string.gsub(command[2], ":wait$", ":completed") send("ZADD", key, 1, "ghost") end"""
"""Lua: the script leaves the id of a job that does not exist."""


@pytest.mark.parametrize("limits", [ADDS_ONLY, PRODUCES], ids=["adds-only", "bare-jobs"])
def test_a_client_that_only_adds_and_adds_correctly_has_no_failure(tried: Tried, limits: list[str]) -> None:
    verdicts = tried([*ADDING, *READING] if limits == PRODUCES else ADDING, limits)
    assert verdicts.get("fail", {}) == {}
    assert "add.lifo" in verdicts["pass"]
    assert "getters.job.fields" not in verdicts["pass"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "row"),
    [
        (SECONDS, "job.hash.timestamp"),
        (GHOST, "lifecycle.one-state"),
        ("if event(command) == 'waiting' then return '0-0' end", "event.waiting"),
    ],
    ids=["timestamp-in-seconds", "ghost", "no-event-waiting"],
)
def test_a_client_that_only_adds_fails_the_row_of_its_mistake(tried: Tried, damage: str, row: str) -> None:
    failures = tried(ADDING, ADDS_ONLY, ("add*Job", damage)).get("fail", {})
    assert set(failures) == {row}, failures


NO_LIMIT = """if command[1] == "HMGET" and on(command, "meta") then
    local found = send(unpack(command)) found[%d] = false return found end"""
"""Lua: a script does not see one of the settings of a queue."""
LATER = """if command[1] == "ZADD" and on(command, "delayed") and command[3] % 4096 == 0 then
    command[3] = string.format("%.0f", command[3] + 1) end"""
"""Lua: the first job of a ms has the score of the second."""
ACTIVE = 'if command[1] == "LREM" and ARGV[5] == "failed" then return 0 end'
UNLINKED = 'if command[1] == "SADD" then return 1 end'
MARKED = """if command[1] == "ZADD" and on(command, "prioritized") then
    send("LPUSH", string.gsub(command[2], "prioritized$", "wait"), "0:0") end"""
"""Lua: a job with a priority is marked as before version 5."""
LOCKED = ("faults/short_t", "fetch-next/the_next_job_is_l", "liveness/a_worker_that_renews_no", "lock/other_jobs")
LONG = 'if command[1] == "SET" and on(command, "lock") then change(command, "PX", 30000) end'
UPSIDE_DOWN = 'if command[1] == "ZADD" and on(command, "prioritized") then command[3] = -command[3] end'


@pytest.mark.parametrize(
    ("start", "script", "damage", "rows"),
    [
        ("concurrency/", "moveTo[AF]*", NO_LIMIT % 2, "concurrency.queue-wide"),
        ("lifecycle/a_worker_has_rules", "moveToFinished", ACTIVE, "lifecycle.fail.moves"),
        ("rate-limited-work/", "moveToActive", NO_LIMIT % 3, "ratelimit.queue-wide"),
        (LOCKED, "moveTo*", LONG, "lock.duration"),
        ("fetch-next/a_marker_of_a_f", "addPrioritizedJob", MARKED, ""),
        ("liveness/closing_wa", "updateProgress", 'if command[1] == "HSET" then return 1 end', "job.hash.progress"),
        ("flow-failures/a_running_parent_ends", "addStandardJob", UNLINKED, "flow.child.linked"),
        ("order/jobs_due_in_the_same", "addDelayedJob", LATER, "order.delayed.score order.marker.delayed"),
        ("pause/pausing_twice", "pause", 'if command[1] == "RENAME" then return 1 end', "pause.moves-wait"),
        ("events/one_job", "add*", 'if event(command) == "added" then return "0-0" end', "event.added"),
        ("edge-cases/texts_arrive_in_plain", "addLog", 'if command[3] then command[3] = "a row" end', "log.appended"),
        ("lifecycle/waiting_jobs_come", "addPrioritizedJob", UPSIDE_DOWN, "order.prioritized.score"),
    ],
    ids=[
        "limit",
        "failing",
        "rate-limit",
        "lock",
        "marker",
        "progress",
        "link",
        "score",
        "pause",
        "added",
        "log",
        "priority",
    ],
)
def test_cases_that_build_on_a_requirement_do_not_fail_without_it(
    tried: Tried, start: str | tuple[str, ...], script: str, damage: str, rows: str
) -> None:
    failures = tried([case for case in all_cases() if case.id.startswith(start)], [], (script, damage)).get("fail", {})
    assert set(failures) == {*rows.split()}, failures


def test_only_the_rules_of_removal_fail_if_no_job_is_removed(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "keep_jobs", lambda *_: {"count": -1})
    starts = ("races/a_progress_meets_the_completion", "retention/jobs_go_silently")
    failures = tried([case for case in all_cases() if case.id.startswith(starts)], []).get("fail", {})
    assert set(failures) == {f"lifecycle.remove-on-complete.{rule}" for rule in ("age", "all", "count")}, failures


def test_a_job_that_is_evicted_may_be_read_without_data(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(kind: type[JobRecord], fields: Mapping[str, str], job_id: str) -> Any:
        record = healthy(kind, fields, job_id)
        record.data = record.data if "data" in fields else None
        return record

    healthy = vars(JobRecord)["from_hash"].__func__
    monkeypatch.setattr(JobRecord, "from_hash", classmethod(read))
    starts = ("eviction/a_waiting_job_without_hash_is", "eviction/a_worker_outlives_a_job_without_name")
    verdicts = tried([case for case in all_cases() if case.id.startswith(starts)], [])
    assert "fail" not in verdicts, verdicts["fail"]


def test_nothing_passes_behind_a_claim_that_never_ends(tried: Tried) -> None:
    """Only the claim is at fault, and later steps are not checked."""
    events = [case for case in cases("events") if "event.drained" in case.scenario.requirements]
    verdicts = tried(events, CLAIMS_NOTHING)
    assert len(events) == len(verdicts["unchecked"]["event.drained"]) > 1
    assert verdicts.get("pass", {}) == {}
    assert set(verdicts["fail"]) <= {"lifecycle.claim.oldest-first", "event.active"}


def test_leftovers_of_a_call_that_was_not_refused_count_against_the_acceptance(tried: Tried) -> None:
    """The log of a job that does not exist is not a leftover of a removal."""
    accepting = ("addLog", "if command[1] == 'EXISTS' then return 1 end")
    logging = [case for case in cases("progress") if "log.missing-job" in case.scenario.requirements]
    verdicts = tried(logging, [], accepting)
    assert verdicts == {"fail": {"log.missing-job": {case.id for case in logging}}}
