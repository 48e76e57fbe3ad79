"""The drivers of both Rust clients: what their sources declare, and what a built driver does around the client."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from conformance.driver.authoring import check_driver
from conformance.driver.errors import OperationUnsupported
from conformance.driver.ops import REGISTRY, job, lifecycle, queue
from conformance.driver.ops.flow import UpsertJobScheduler
from conformance.driver.ops.library import LIBRARY_OPERATIONS
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.clients import client_folders
from conformance.servers import RedisInstance

from .conftest import DEADLINE_MS, Bench

IN_MS = 2_000_000_031_457
AS_TEXT = "2033-05-18T03:33:51.457Z"
ROUNDS = 60
"""About one round in twenty fails if the driver handles calls out of order."""

CRATES: Final = {"rust-official": "bullmq-official", "bullmq-rs": "bullmq-rs"}
"""The crate on crates.io that each client is."""

UNTRIED: Final = {"rust-official": ["manual worker"], "bullmq-rs": []}
"""Steps of `driver check` that do not apply, because the client lacks the operations."""

FAILING: Final = {
    "rust-official": set(),
    "bullmq-rs": {f"processor {name}" for name in ("echo", "sleep", "fail", "steps")},
}
"""Steps that fail because of the crate: a processor of bullmq-rs returns no value, so every job returns {}."""


@pytest.fixture(params=CRATES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read_toml(name: str, file: str) -> dict[str, Any]:
    return tomllib.loads((client_folders()[name] / file).read_text("utf-8"))


def test_every_operation_is_declared_or_its_page_says_why_not(name: str) -> None:
    page = (client_folders()[name] / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (queue|job|flow|worker|relay) \| (.*) \|$", page, re.MULTILINE)
    missing = {f"{role}.{op}" for role, ops in rows for op in re.findall(r"`([a-z]\w+)`", ops)}
    assert declared_in_source(name) | missing == set(REGISTRY) - LIBRARY_OPERATIONS
    assert declared_in_source(name) & missing == set()


def declared_in_source(name: str) -> set[str]:
    """The operations in the lists of the driver's source."""
    texts = [path.read_text("utf-8") for path in sorted((client_folders()[name] / "src").glob("*.rs"))]
    lists = [ops for text in texts for ops in re.findall(r"OPS: &\[&str\] =\s*&\[(.*?)\];", text, re.DOTALL)]
    return {op for ops in lists for op in re.findall(r'"([\w.]+)"', ops)} | {"open", "close", "reset", "resolve"}


def test_the_version_is_the_same_everywhere(name: str) -> None:
    version = read_toml(name, "Cargo.toml")["dependencies"][CRATES[name]].removeprefix("=")
    locked = read_toml(name, "Cargo.lock")["package"]
    assert [package["version"] for package in locked if package["name"] == CRATES[name]] == [version]
    assert f'version: "{version}"' in (client_folders()[name] / "src" / "main.rs").read_text("utf-8")
    assert f"version {version}" in (client_folders()[name] / "README.md").read_text("utf-8")


def test_every_crate_is_pinned_by_its_hash(name: str) -> None:
    locked = read_toml(name, "Cargo.lock")["package"]
    assert [package["name"] for package in locked if "source" in package and "checksum" not in package] == []


def test_a_change_of_the_shared_sources_rebuilds_both_drivers(name: str) -> None:
    assert {"../rust_shared", "../../driver/serve.rs"} < set(read_toml(name, "client.toml")["build"]["sources"])


def built(name: str) -> Path:
    """The driver's program. Skips if no run has built it, because a build takes minutes."""
    step = msgspec.convert(read_toml(name, "client.toml")["build"], BuildStep)
    program = ClientBuild(name, client_folders()[name], step).program
    if not program.exists():
        pytest.skip(f"{name} is not built yet on this machine: `bullmq-conformance run --client {name}`")
    return program


@pytest.mark.slow
def test_passes_the_kits_own_check_of_drivers(name: str, server: RedisInstance) -> None:
    program = built(name)
    address = RedisAddress(mode="standalone", nodes=list(server.nodes))
    with server.connect() as redis:
        steps = check_driver(
            lambda: ChildProcess.start([str(program)], seed=1),
            address=address,
            redis=redis,
            prefix=f"check-{name}",
            seed=7,
        )
    failing = {step.name: step.detail for step in steps if step.tried and not step.ok}
    assert failing.keys() == FAILING[name], failing
    assert all("returnvalue '{}'" in detail for detail in failing.values())
    assert [step.name for step in steps if not step.tried] == UNTRIED[name]


@pytest.fixture(scope="module", params=CRATES)
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


def lose_hash(bench: Bench, job_id: str) -> None:
    with bench.server.connect() as redis:
        assert redis.delete(f"{bench.prefix}:q:{job_id}") == 1


def test_a_job_whose_hash_was_deleted_is_called_through_the_object_that_its_user_has(rust: Bench) -> None:
    rust.call(queue.Add(name="job", opts={"jobId": "held"}))
    lose_hash(rust, "held")
    assert rust.call(job.GetState(job="held")).state == "waiting"


def test_a_user_also_has_the_job_objects_of_a_bulk(rust: Bench) -> None:
    [job_id] = rust.call(queue.AddBulk(jobs=[queue.NewJob(name="job")])).ids
    lose_hash(rust, job_id)
    assert rust.call(job.GetState(job=job_id)).state == "waiting"


def test_a_user_has_no_object_of_a_job_that_never_existed(rust: Bench) -> None:
    with pytest.raises(OperationUnsupported, match="job never does not exist"):
        rust.call(job.GetState(job="never"))


@pytest.mark.parametrize("date", ["startDate", "endDate"])
def test_a_date_as_text_is_unsupported_and_not_blamed_on_the_client(rust: Bench, date: str) -> None:
    repeat = {"pattern": "0 0 1 1 *", "tz": "UTC"}
    with pytest.raises(OperationUnsupported, match="number of ms"):
        rust.call(UpsertJobScheduler(id="s", repeat={**repeat, date: AS_TEXT}))
    assert rust.call(UpsertJobScheduler(id="s", repeat={**repeat, date: IN_MS})).job is not None


class Lines:
    """The driver of the official client as a process that gets lines, several at once if a test needs that."""

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
        """Write all calls at once; returns their ids."""
        ids = list(range(self._calls, self._calls + len(calls)))
        self._calls += len(calls)
        self._send(
            *(
                {"type": "call", "id": number, "op": op, "handle": handle, "args": args, "deadline_ms": DEADLINE_MS}
                for number, (op, handle, args) in zip(ids, calls, strict=True)
            )
        )
        return ids

    def wait_for_answers(self, ids: list[int]) -> None:
        """Read until these calls are answered. Answers to other calls may come in between."""
        while not self._answered.issuperset(ids):
            self._read()

    def _read(self) -> None:
        line = self._next()
        if line["type"] == "result":
            assert line["status"] == "ok", line
            self._answered.add(line["id"])
        elif line["name"] == "job":
            self.received = line["args"]["job"]["id"]

    def open(self, role: str, queue: str, **more: Any) -> None:
        where = {"role": role, "queue": queue, "prefix": "begin", "redis": self._address}
        self.call(("open", role, {**where, **more}))

    def wait_for_job(self) -> str:
        # Through `_read`: an answer to an earlier `close` may come first, and must not be lost.
        while not self.received:
            self._read()
        return self.received

    received = ""

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def test_a_worker_starts_to_close_before_the_next_call_runs(server: RedisInstance) -> None:
    """Otherwise its loop takes another job when the kit ends its current one."""
    driver = Lines(built("rust-official"), server)
    try:
        for number in range(ROUNDS):
            name = f"q{number}"
            driver.open("queue", name)
            driver.call(
                *[("queue.add", "queue", {"name": "job", "data_raw": "{}", "opts": {"jobId": x}}) for x in "ab"]
            )
            driver.received = ""
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


def test_a_close_that_ends_late_keeps_a_newer_object_of_the_same_name(server: RedisInstance) -> None:
    """A scenario may end with an active job without waiting for it, and the next one opens the same names.

    Its `close` means the object that had the name when the call was read, even if the later `reset` runs first.
    """
    driver = Lines(built("rust-official"), server)
    try:
        closing = []
        for number in range(ROUNDS):
            name = f"late{number}"
            driver.open("queue", name)
            driver.call(("queue.add", "queue", {"name": "job", "data_raw": "{}", "opts": {}}))
            driver.received = ""
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
