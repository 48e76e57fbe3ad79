"""The driver on a real cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.servers import open_server

from .line_client import LineClient


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    """Addresses of the nodes."""
    with open_server("cluster:3", announce=print) as server:
        yield list(server.nodes)


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
