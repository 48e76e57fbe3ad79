"""Mutants as drivers in a process of their own, as a run of the gate starts them."""

from __future__ import annotations

import sys

import pytest

from conformance.driver.ops import lifecycle, queue
from conformance.driver.process import ChildProcess
from conformance.mutants.driver import main
from conformance.servers import Server

COMMAND = [sys.executable, "-m", "conformance.mutants.driver"]


def test_a_mutant_serves_the_driver_protocol(server: Server) -> None:
    prefix = server.fresh_prefix()
    driver = ChildProcess.start([*COMMAND, "marker.missing"], seed=0)
    try:
        assert driver.ready.client.name == "mutant marker.missing"
        opening = lifecycle.Open(role="queue", queue="q", prefix=prefix, redis=server.for_drivers, options={})
        driver.call(opening, handle="q-1")
        assert driver.call(queue.Add(name="job", data_raw="{}", opts={}), handle="q-1").id == "1"
        with server.connect() as redis:
            assert redis.lrange(f"{prefix}:q:wait", 0, -1) == [b"1"]
            assert not redis.exists(f"{prefix}:q:marker")
    finally:
        driver.close()
        server.remove_prefix(prefix)


def test_without_a_name_all_mutants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "  marker.missing: Adding a job does not wake a worker." in capsys.readouterr().err


def test_an_unknown_name_is_a_usage_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nobody"]) == 2
    assert "there is no mutant 'nobody'" in capsys.readouterr().err
