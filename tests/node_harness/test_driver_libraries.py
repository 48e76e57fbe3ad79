"""The driver with other libraries for Redis than ioredis: it declares less, and works the same otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from conformance.environment.clients import Launch, Toolchain, find_toolchain
from conformance.problems import EnvironmentProblem
from conformance.upstream.redis_libraries import OTHERS, RedisLibrary, bun_program

from .conftest import LineClient

VERSION = "6.7.0"


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("", print)


def launched(toolchain: Toolchain, library: RedisLibrary) -> Launch:
    """The driver with this library. Skips Bun if it is not installed."""
    if library == "bun":
        try:
            bun_program()
        except EnvironmentProblem as problem:
            pytest.skip(str(problem))
    return toolchain.launch(f"node@{VERSION}", library=library)


@pytest.mark.slow
@pytest.mark.parametrize("library", OTHERS)
def test_a_job_runs_with_each_library(
    toolchain: Toolchain, library: RedisLibrary, redis_port: int, store: redis.Redis
) -> None:
    launch = launched(toolchain, library)
    driver = LineClient(launch.command, launch.environment)
    try:
        # Some of them load more code than all the rest of the driver.
        ready = driver.hello(within_s=60)
        assert ready["client"]["version"] == VERSION
        assert {OTHERS[library].package or "bun"} <= set(ready["client"]["packages"])
        assert not {"cluster", "url", "fail-fast"} & set(ready["capabilities"])
        address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
        place: dict[str, Any] = {"queue": "q", "prefix": f"of-{library}", "redis": address}
        driver.ok("open", "q", role="queue", **place)
        driver.ok("open", "w", role="worker", processor="echo", **place)
        assert driver.ok("queue.add", "q", name="greeting", data_raw='"hello"') == {"id": "1"}
        driver.event("w", "completed", job="1")
        assert store.hget(f"of-{library}:q:1", "returnvalue") == b'"hello"'
        driver.ok("close", "w")
        driver.ok("close", "q")
    finally:
        driver.process.kill()
        driver.process.wait()
