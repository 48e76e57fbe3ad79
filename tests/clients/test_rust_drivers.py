"""What the drivers of both Rust clients do beside their clients' own words: where one is built."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.driver.errors import OperationUnsupported
from conformance.driver.ops import job, lifecycle, queue
from conformance.driver.ops.flow import UpsertJobScheduler
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.clients import client_folders
from conformance.servers import RedisInstance

from .conftest import DEADLINE_MS, Bench

IN_MS = 2_000_000_031_457
AS_TEXT = "2033-05-18T03:33:51.457Z"
ROUNDS = 60
"""Without the order that they test, about one in twenty goes wrong."""


def built(name: str) -> Path:
    """The driver, where a run has built it: that takes minutes, and no test waits for it."""
    folder = client_folders()[name]
    step = msgspec.convert(tomllib.loads((folder / "client.toml").read_text("utf-8"))["build"], BuildStep)
    program = ClientBuild(name, folder, step).program
    if not program.exists():
        pytest.skip(f"{name} is not built yet on this machine: `bullmq-conformance run --client {name}`")
    return program


@pytest.fixture(scope="module", params=["rust-official", "bullmq-rs"])
def rust_driver(request: pytest.FixtureRequest) -> Iterator[ChildProcess]:
    driver = ChildProcess.start([str(built(request.param))], seed=1)
    yield driver
    driver.close()


@pytest.fixture
def rust(rust_driver: ChildProcess, server: RedisInstance) -> Iterator[Bench]:
    bench = Bench(rust_driver, server)
    bench.open("queue", "q")
    yield bench
    rust_driver.call(lifecycle.Reset(), deadline_ms=DEADLINE_MS)


def lose_hash(bench: Bench, name: str) -> None:
    with bench.server.connect() as redis:
        assert redis.delete(f"{bench.prefix}:q:{name}") == 1


def test_a_job_whose_hash_has_gone_is_asked_as_its_user_has_it_in_hand(rust: Bench) -> None:
    rust.call(queue.Add(name="job", opts={"jobId": "held"}))
    lose_hash(rust, "held")
    assert rust.call(job.GetState(job="held")).state == "waiting"


def test_a_job_of_a_bulk_is_in_hand_as_well(rust: Bench) -> None:
    [name] = rust.call(queue.AddBulk(jobs=[queue.NewJob(name="job")])).ids
    lose_hash(rust, name)
    assert rust.call(job.GetState(job=name)).state == "waiting"


def test_a_job_that_there_never_was_is_in_nobodys_hand(rust: Bench) -> None:
    with pytest.raises(OperationUnsupported, match="nobody gets a Job never"):
        rust.call(job.GetState(job="never"))


@pytest.mark.parametrize("date", ["startDate", "endDate"])
def test_a_date_is_a_number_and_no_other_spelling_is_refused_in_the_clients_name(rust: Bench, date: str) -> None:
    repeat = {"pattern": "0 0 1 1 *", "tz": "UTC"}
    with pytest.raises(OperationUnsupported, match="number of ms"):
        rust.call(UpsertJobScheduler(id="s", repeat={**repeat, date: AS_TEXT}))
    assert rust.call(UpsertJobScheduler(id="s", repeat={**repeat, date: IN_MS})).job is not None


class Lines:
    """The driver of the official client as a process to which lines are written, several at once where that matters."""

    def __init__(self, program: Path, server: RedisInstance) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._address = msgspec.to_builtins(RedisAddress(mode="standalone", nodes=list(server.nodes)))
        self._calls = 0
        self._answered: set[int] = set()
        self._send({"type": "hello", "protocol": 1})
        self._next()

    def _send(self, *lines: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        self._process.stdin.flush()

    def _next(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def call(self, *calls: tuple[str, str, dict[str, Any]]) -> None:
        """Write all calls at once, and read until all are answered."""
        self.wait_for_answers(self.ask(*calls))

    def ask(self, *calls: tuple[str, str, dict[str, Any]]) -> list[int]:
        """Write all calls at once; returns what their answers are known by."""
        asked = list(range(self._calls, self._calls + len(calls)))
        self._calls += len(calls)
        self._send(
            *(
                {"type": "call", "id": number, "op": op, "handle": handle, "args": args, "deadline_ms": DEADLINE_MS}
                for number, (op, handle, args) in zip(asked, calls, strict=True)
            )
        )
        return asked

    def wait_for_answers(self, asked: list[int]) -> None:
        """Read until all are answered. What else was asked may be answered meanwhile."""
        while asked := [number for number in asked if number not in self._answered]:
            line = self._next()
            if line["type"] == "result":
                assert line["status"] == "ok", line
                self._answered.add(line["id"])
            elif line["name"] == "job":
                self.handed_over = line["args"]["job"]["id"]

    def open(self, role: str, queue: str, **more: Any) -> None:
        where = {"role": role, "queue": queue, "prefix": "begin", "redis": self._address}
        self.call(("open", role, {**where, **more}))

    def wait_for_job(self) -> str:
        while not self.handed_over:
            line = self._next()
            if line.get("name") == "job":
                self.handed_over = line["args"]["job"]["id"]
        return self.handed_over

    handed_over = ""

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def test_a_worker_is_told_to_close_before_the_next_call_is_carried_out(server: RedisInstance) -> None:
    """Else its loop takes another job when the kit ends the one that it has."""
    driver = Lines(built("rust-official"), server)
    try:
        for number in range(ROUNDS):
            name = f"q{number}"
            driver.open("queue", name)
            driver.call(
                *[("queue.add", "queue", {"name": "job", "data_raw": "{}", "opts": {"jobId": x}}) for x in "ab"]
            )
            driver.handed_over = ""
            driver.open("worker", name, processor="ask", options={"skipStalledCheck": True, "skipLockRenewal": True})
            first = driver.wait_for_job()
            driver.call(
                ("close", "worker", {"force": False}),
                ("resolve", "worker", {"job": first, "outcome": "complete", "value_raw": "1"}),
            )
            driver.call(("close", "queue", {"force": False}))
            with server.connect() as redis:
                assert (redis.llen(f"begin:{name}:wait"), redis.llen(f"begin:{name}:active")) == (1, 0), (
                    f"round {number}"
                )
    finally:
        driver.end()


def test_a_close_that_comes_to_its_end_late_forgets_no_other_of_the_same_name(server: RedisInstance) -> None:
    """A scenario that ends with a job in hand does not wait for it, and the next one opens the same names.

    Its `close` means what had the name when it was read, also where the `reset` after it is carried out first.
    """
    driver = Lines(built("rust-official"), server)
    try:
        closing = []
        for number in range(ROUNDS):
            name = f"late{number}"
            driver.open("queue", name)
            driver.call(("queue.add", "queue", {"name": "job", "data_raw": "{}", "opts": {}}))
            driver.handed_over = ""
            driver.open("worker", name, processor="ask", options={})
            driver.wait_for_job()
            close, reset = driver.ask(("close", "worker", {"force": False}), ("reset", "", {}))
            closing.append(close)
            driver.wait_for_answers([reset])
        driver.open("worker", "next", processor="ask", options={})
        driver.wait_for_answers(closing)
        driver.call(("worker.isRunning", "worker", {}))
    finally:
        driver.end()
