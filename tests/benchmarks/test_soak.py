"""A soak of seconds: it passes with the reference client, and fails if a job or memory is lost."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from benchmarks import soak
from benchmarks.soak import Application, Tally, connection_of
from conformance.reference_impl import Job

OPTIONS = Namespace(minutes=0.05, rate=50, concurrency=10, cut_every=1000.0, seed=0, tls=False, redis=None)


def _soaked(**changes: Any) -> tuple[bool, str]:
    """The result, and the printed text."""
    options, text = Namespace(**{**vars(OPTIONS), **changes}), StringIO()
    console = Console(file=text, soft_wrap=True, width=200)
    with connection_of(options, console.print) as connection:
        holds = asyncio.run(soak.soak(options, connection, console))
    return holds, text.getvalue()


def test_nothing_is_lost_while_connections_are_cut() -> None:
    holds, text = _soaked(cut_every=0.3)
    assert holds, text
    assert "150 jobs in 0.05 min" in text
    assert "completed 150 by the count of Redis" in text
    assert "left {}" in text
    assert " 0 connections cut" not in text, text


def test_a_job_that_does_not_complete_fails_the_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Application._process

    async def fail_one(application: Application, job: Job) -> None:
        if job.id == "j4":
            raise RuntimeError("this one never completes")
        await process(application, job)

    monkeypatch.setattr(Application, "_process", fail_one)
    monkeypatch.setattr(soak, "WITHOUT_PROGRESS_S", 1)
    holds, text = _soaked()
    assert not holds, text
    assert "never run 1, run again 0, left {'failed': 1}" in text


def test_memory_that_grows_fails_the_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "LARGEST_GROWTH_MB", -1000)
    holds, text = _soaked()
    assert not holds, text


def test_growth_is_that_from_the_second_to_the_last_fifth() -> None:
    start, steady = [10.0, 90.0], [50.0] * 6
    assert Tally(resident_mb=[*start, *steady, 58.0, 60.0]).growth_mb() == 9
    assert Tally(resident_mb=[40.0]).growth_mb() == 0
