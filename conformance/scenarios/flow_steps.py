"""What the scenarios about flows have in common."""

from __future__ import annotations

import json
from typing import Any

from conformance.participants.expect import equal
from conformance.participants.handles import FlowHandle, QueueHandle, WorkerHandle
from conformance.participants.participant import Participant


def node(name: str, *children: dict[str, Any], queue: str = "q", **opts: Any) -> dict[str, Any]:
    """A job of a flow whose id is its name."""
    own = {"jobId": name, **opts}
    return {"name": name, "queue": queue, "data_raw": json.dumps({"n": name}), "opts": own, "children": list(children)}


def chosen(option: str) -> dict[str, Any]:
    """The option as arguments of `node`."""
    return {option: True}


def open_all(client: Participant) -> tuple[FlowHandle, QueueHandle, WorkerHandle]:
    """A flow producer, and a queue with a worker that is driven step by step."""
    return client.flow(), client.queue(), client.worker()


def run(worker: WorkerHandle, job: str, value: Any = None) -> None:
    """Claim the next job, which must be this one, and complete it."""
    equal(worker.claim_one().id, job, f"{job} is the next to run")
    worker.complete(job, value)


def children_of(queue: QueueHandle, job: str, kind: str) -> list[str]:
    """Ids of the children in one of the keys of a parent."""
    view = queue.redis
    key = f"{job}:{kind}"
    members = {"zset": view.members, "hash": lambda name: list(view.hash(name)), "set": view.set_members}
    return sorted(member.rpartition(":")[2] for member in members.get(view.type(key), lambda _: [])(key))
