"""A client that always has another job does not hold the kit."""

from __future__ import annotations

from typing import Any, cast

import pytest

from conformance.driver.ops.base import JobView
from conformance.participants.expect import Mismatch
from conformance.participants.handles import WorkerHandle
from conformance.scenarios.support.steps import MOST_CLAIMS, claimed_until_empty


class FiniteWorker:
    """A worker that hands out `jobs` jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.tokens: list[str] = []

    def claim(self, token: str) -> JobView | None:
        self.tokens.append(token)
        number = len(self.tokens)
        return JobView(id=str(number), name="job", data_raw="{}") if number <= self.jobs else None


def claimed(worker: Any) -> list[str]:
    return [job.id for job in claimed_until_empty(cast("WorkerHandle", worker), "token-7")]


def test_jobs_are_claimed_until_none_is_left() -> None:
    worker = FiniteWorker(3)
    assert claimed(worker) == ["1", "2", "3"]
    assert worker.tokens == ["token-7"] * 4


def test_a_queue_that_never_runs_empty_is_a_mismatch() -> None:
    worker = FiniteWorker(MOST_CLAIMS * 1000)
    with pytest.raises(Mismatch, match="the queue runs empty"):
        claimed(worker)
    assert len(worker.tokens) == MOST_CLAIMS
