"""Processor time of a process and what is below it."""

from __future__ import annotations

import time

from benchmarks.processor import processor_s


def test_the_processor_time_of_a_process_grows_with_its_work() -> None:
    before = processor_s()
    deadline = time.monotonic() + 30
    while processor_s() <= before:
        assert time.monotonic() < deadline, f"still at {before} s"
    assert processor_s() > before
