"""The driver on a real cluster of three nodes."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from conformance.servers.binary import any_binary

from .line_client import LineClient

SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


def _free_port() -> int:
    """A port whose cluster bus port (10000 above) is free too."""
    for port in range(21000, 31000):
        with socket.socket() as client_side, socket.socket() as bus:
            try:
                client_side.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            return port
    raise AssertionError("no free pair of ports")


def _start(folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    port = _free_port()
    command = [any_binary(print).path, "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    command += ["--save", "", "--appendonly", "no", "--dir", str(folder), "--cluster-config-file", f"nodes-{port}.conf"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _wait(port, lambda client: bool(client.ping()))
    return port, process


def _wait(port: int, ready: Callable[[redis.Redis], bool]) -> None:
    deadline = time.monotonic() + 20
    with redis.Redis(port=port) as client:
        while True:
            try:
                seen = ready(client)
            except redis.ConnectionError as error:
                seen, problem = False, str(error)
            else:
                problem = "not ready"
            if seen:
                return
            if time.monotonic() > deadline:
                pytest.fail(f"node {port}: {problem}")


def _sees_a_whole_cluster(client: redis.Redis) -> bool:
    fields: dict[str, str] = client.cluster("INFO")
    return fields["cluster_state"] == "ok" and fields["cluster_known_nodes"] == "3"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Addresses of the nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    nodes: list[tuple[int, subprocess.Popen[bytes]]] = []
    try:
        for first, last in SLOTS:
            nodes.append(_start(folder))
            with redis.Redis(port=nodes[-1][0]) as client:
                client.cluster("ADDSLOTS", *range(first, last + 1))
                client.cluster("MEET", "127.0.0.1", nodes[0][0])
        for port, _ in nodes:
            _wait(port, _sees_a_whole_cluster)
        yield [f"127.0.0.1:{port}" for port, _ in nodes]
    finally:
        for _, process in nodes:
            process.terminate()
            process.wait()


def test_every_role_works_on_a_cluster(driver: LineClient, cluster: list[str]) -> None:
    address = {"mode": "cluster", "nodes": cluster}
    roles = {"q": "queue", "e": "events", "f": "flow", "hand": "worker", "loop": "worker"}
    for handle, role in roles.items():
        processor = "ask" if handle == "loop" else "manual"
        queue = "looped" if handle == "loop" else "q"
        driver.ok("open", handle, role=role, queue=queue, prefix="{tag}", redis=address, processor=processor)

    driver.ok("queue.add", "q", name="n", data_raw="1.0")
    driver.event("e", "queue-event", name="waiting")
    assert driver.ok("worker.getNextJob", "hand", token="t")["job"]["id"] == "1"
    driver.ok("worker.moveToCompleted", "hand", job="1", token="t", value_raw='"v"')
    assert driver.ok("job.waitUntilFinished", "q", job="1", events="e") == {"value_raw": '"v"'}

    driver.ok("flow.add", "f", flow={"name": "p", "queue": "looped", "opts": {"jobId": "root"}})
    driver.event("loop", "job")
    driver.ok("resolve", "loop", job="root", outcome="complete")
    driver.event("loop", "completed", job="root")
    for handle in roles:
        driver.ok("close", handle)


def test_a_prefix_without_hash_tag_fails(driver: LineClient, cluster: list[str]) -> None:
    address = {"mode": "cluster", "nodes": cluster}
    driver.ok("open", "q", role="queue", queue="q", prefix="plain", redis=address)
    error = driver.error("queue.add", "q", name="n")
    assert (error["code"], "CROSSSLOT" in error["message"]) == ("other", True)
    bulk = driver.error("queue.addBulk", "q", jobs=[{"name": "n"}])
    assert (bulk["code"], "same slot" in bulk["message"]) == ("other", True)
    driver.ok("reset")
