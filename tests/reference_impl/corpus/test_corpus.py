"""Real BullMQ and the reference client: same answers, same commands, same bytes in Redis, case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from conformance.driver.connection import DriverConnection
from conformance.driver.ops.library import LIBRARY_OPERATIONS
from conformance.protocol.scripts import DRIVER_CODES
from tests.reference_impl.corpus.all_cases import AREAS, CASES, operations
from tests.reference_impl.corpus.client_runs import CaseRunner
from tests.reference_impl.corpus.steps import (
    CorpusCase,
    DriverCall,
    Step,
    add,
    add_bulk,
    case,
    do,
    fail,
    one,
    queue,
    take,
    worker,
)

BY_THE_RUNNER = {"reset"}
"""Operations that need no case, because they run after each one."""

JOB_OPTIONS = {
    *("attempts", "backoff", "continueParentOnFailure", "debounce", "deduplication", "delay", "failParentOnFailure"),
    *("ignoreDependencyOnFailure", "jobId", "keepLogs", "lifo", "parent", "prevMillis", "priority", "removeOnComplete"),
    *("removeDependencyOnFailure", "removeOnFail", "repeat", "repeatJobKey", "sizeLimit", "stackTraceLimit"),
    *("telemetry", "timestamp"),
}
"""All of JobsOptions in 5.62.0."""

REPEAT_OPTIONS = {
    *("count", "endDate", "every", "immediately", "jobId", "key", "limit", "offset", "pattern", "startDate", "tz"),
}
"""RepeatOptions; `prevMillis` is BullMQ's own."""

HANDLE_OPTIONS = {
    "queue": {"defaultJobOptions", "skipMetasUpdate", "streams"},
    "worker": {
        *("autorun", "concurrency", "drainDelay", "limiter", "lockDuration", "maxStalledCount", "maxStartedAttempts"),
        *("metrics", "name", "removeOnComplete", "removeOnFail", "skipLockRenewal", "skipStalledCheck"),
        *("stalledInterval",),
    },
    "events": {"autorun", "lastEventId"},
}
"""Options of queues, workers and readers whose effect is visible in Redis or in an answer, except for connections."""


SHOWN_BY = {
    "missing-job": "finish-no-such-job",
    "missing-lock": "finish-lock-expired",
    "wrong-state": "edit-promote-not-delayed",
    "pending-dependencies": "parent-pending-children",
    "missing-parent": "refused-parent-that-does-not-exist",
    "lock-mismatch": "finish-claimed-by-another",
    "parent-replaced": "parent-taken-by-another-parent",
    "scheduler-job": "schedule-iteration-cannot-be-removed",
    "failed-children": "parent-fails-while-parent-is-active",
    "scheduler-collision": "schedule-collision-of-two-slots",
    "invalid-argument": "refused-id-integer",
    "job-failed": "listen-failed-before",
    "timeout": "listen-not-in-time",
}
"""The cases of each error: all errors of the scripts, and those that the client raises itself."""


@pytest.mark.parametrize("name", CASES)
def test_reference_is_indistinguishable(name: str, differences: Callable[[CorpusCase], list[str]]) -> None:
    found = differences(CASES[name])
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "backoff",
    [
        {"type": "fixed"},
        {"type": "exponential"},
        {"type": "fixed", "delay": None},
        {"type": "exponential", "delay": None},
        {"type": "exponential", "delay": "soon"},
        {"type": "exponential", "delay": "60000"},
        {"type": "fixed", "delay": "60000"},
        {"type": "fixed", "jitter": 0.5},
    ],
    ids=str,
)
def test_a_back_off_without_a_number(backoff: dict[str, Any], differences: Callable[[CorpusCase], list[str]]) -> None:
    assert not differences(case("backoff", queue(), worker(), add(attempts=2, backoff=backoff), take(), fail("1")))


@pytest.mark.parametrize(
    "steps",
    [
        (add(repeat={"every": 5000, "pattern": "* * * * *"}),),
        (add(repeat={"every": 5000, "endDate": 1}),),
        (add(repeat={"pattern": "x"}),),
        (add_bulk(one(repeat={"every": 5000}, delay=1)),),
        (do("queue.getJobScheduler", id="missing:id:1700000000001:UTC:0 0 * * *"),),
    ],
    ids=["both", "end-passed", "no-pattern", "delay", "key-of-old-versions"],
)
def test_an_older_option_repeat(steps: tuple[Step, ...], differences: Callable[[CorpusCase], list[str]]) -> None:
    assert not differences(case("repeat", queue(), *steps))


def test_the_corpus_has_every_operation(oracle_driver: DriverConnection, reference_driver: DriverConnection) -> None:
    declared = set(oracle_driver.ready.ops) & set(reference_driver.ready.ops)
    used = set().union(*map(operations, CASES.values()))
    assert declared - BY_THE_RUNNER == used


def test_both_clients_have_the_same_operations(
    oracle_driver: DriverConnection, reference_driver: DriverConnection
) -> None:
    assert set(reference_driver.ready.ops) - LIBRARY_OPERATIONS == set(oracle_driver.ready.ops)


def test_the_corpus_has_every_option() -> None:
    used = set(_job_options())
    assert used >= JOB_OPTIONS, JOB_OPTIONS - used
    repeat = set(_repeat_options())
    assert repeat >= REPEAT_OPTIONS, REPEAT_OPTIONS - repeat


@pytest.mark.parametrize("role", HANDLE_OPTIONS)
def test_the_corpus_has_every_option_of_handles(role: str) -> None:
    opened = [step.args for step in _operations() if step.op == "open" and step.args["role"] == role]
    used = {option for args in opened for option in args["options"]}
    assert used >= HANDLE_OPTIONS[role], HANDLE_OPTIONS[role] - used


def test_the_corpus_is_not_small() -> None:
    assert len(CASES) == sum(map(len, AREAS.values()))
    assert len(CASES) > 500


@pytest.mark.parametrize("code", SHOWN_BY)
def test_the_corpus_has_every_error(code: str, oracle: CaseRunner) -> None:
    result = oracle.run(CASES[SHOWN_BY[code]])
    assert code in {answer["refused"] for _, answer in result.answers if "refused" in answer}


def test_no_error_is_forgotten() -> None:
    assert {*DRIVER_CODES.values(), "invalid-argument", "job-failed", "timeout"} == set(SHOWN_BY)


def _operations() -> Iterator[DriverCall]:
    return (step for case in CASES.values() for step in case.steps if isinstance(step, DriverCall))


def _job_options() -> Iterator[str]:
    for step in _operations():
        yield from step.args.get("opts") or {}
        if step.op == "queue.addBulk":
            for job in step.args["jobs"]:
                yield from job["opts"]


def _repeat_options() -> Iterator[str]:
    for step in _operations():
        repeat: Mapping[str, Any] = step.args.get("repeat") or (step.args.get("opts") or {}).get("repeat") or {}
        yield from repeat
