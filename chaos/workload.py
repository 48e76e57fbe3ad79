"""What producers ask for in a run: chosen by the seed alone, so that the same seed asks for the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.checkers.histories.lines import Limit, PlannedJob
from conformance.driver.ops.base import Op
from conformance.driver.ops.flow import AddFlow, FlowJob
from conformance.driver.ops.queue import Add, AddBulk, NewJob

MAIN, LIMITED, NARROW = "main", "limited", "narrow"
"""Queues: one for everything, one with a rate limit, one with a global concurrency."""
QUEUES = (MAIN, LIMITED, NARROW)
RATE = Limit(most=5, duration_ms=200)
NARROW_CONCURRENCY = 2
EVENTS_KEPT = 1_000_000
"""The streams must not be trimmed while they are read."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's data tells its processor: the kind, how long to work (ms), how often to fail first."""

    kind: str = "plain"
    work_ms: float = 2
    fails: int = 0


@dataclass(frozen=True)
class PlannedCall:
    """A call of a producer: the operation, on which kind of handle of which queue, and the jobs that it adds."""

    op: Op[Any]
    role: str
    queue: str
    jobs: tuple[PlannedJob, ...]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """How the workload is made up.

    `weights`: of the kinds of call. `slow_ms`: how long slow jobs work; `narrow_ms`: how long those of the narrow queue
    do at most.
    """

    weights: Mapping[str, int] = field(
        default_factory=lambda: {
            "plain": 30,
            "lifo": 5,
            "prioritized": 10,
            "delayed": 10,
            "retries": 8,
            "backs-off": 6,
            "fails": 4,
            "waits": 3,
            "delays": 3,
            "unkept": 5,
            "slow": 2,
            "bulk": 6,
            "flow": 5,
            "limited": 6,
            "narrow": 8,
        }
    )
    slow_ms: float = 300
    narrow_ms: float = 30


class Workload:
    """An endless series of calls."""

    def __init__(self, seed: int, mix: Mix, *, label: str = "j") -> None:
        self._random = random.Random(seed)
        self._mix = mix
        self._label = label
        self._made = 0
        self._kinds: Mapping[str, Callable[[], PlannedCall]] = {
            "bulk": self._bulk,
            "flow": self._flow,
        }

    def __iter__(self) -> Iterator[PlannedCall]:
        kinds, weights = zip(*self._mix.weights.items(), strict=True)
        while True:
            kind = self._random.choices(kinds, weights)[0]
            yield self._kinds[kind]() if kind in self._kinds else self._one(kind)

    def _one(self, kind: str) -> PlannedCall:
        planned, opts, orders = self._job(kind)
        op = Add(name=planned.name, data_raw=_data(orders), opts=opts)
        return PlannedCall(op, "queue", planned.queue, (planned,))

    def _bulk(self) -> PlannedCall:
        made = [self._job(self._random.choice(("plain", "delayed", "prioritized"))) for _ in range(5)]
        jobs = [NewJob(name=planned.name, data_raw=_data(orders), opts=opts) for planned, opts, orders in made]
        return PlannedCall(AddBulk(jobs=jobs), "queue", MAIN, tuple(planned for planned, _, _ in made))

    def _flow(self) -> PlannedCall:
        parent, _, orders = self._job("plain")
        children = [self._job(kind, parent=parent.name) for kind in ("plain", "delayed", "narrow")]
        nodes = [
            FlowJob(name=child.name, queue=child.queue, data_raw=_data(told), opts=opts)
            for child, opts, told in children
        ]
        flow = FlowJob(name=parent.name, queue=parent.queue, data_raw=_data(orders), children=nodes)
        planned = (parent, *(child for child, _, _ in children))
        return PlannedCall(AddFlow(flow=flow), "flow", parent.queue, planned)

    def _job(self, kind: str, *, parent: str = "") -> tuple[PlannedJob, dict[str, Any], Orders]:
        """A job of a kind: how it is planned, its options, and what its processor is told."""
        self._made += 1
        name = f"{self._label}{self._made}"
        work = round(self._random.uniform(2, 10), 1)
        planned: dict[str, Any] = {"name": name, "queue": MAIN, "parent": parent}
        opts: dict[str, Any] = {}
        orders = Orders(work_ms=work)
        if kind == "lifo":
            planned["lifo"] = opts["lifo"] = True
        elif kind == "prioritized":
            planned["priority"] = opts["priority"] = self._random.randint(1, 5)
        elif kind == "delayed":
            planned["delay_ms"] = opts["delay"] = self._random.randint(50, 800)
        elif kind in {"retries", "backs-off"}:
            planned["attempts"] = opts["attempts"] = 4
            opts |= {"backoff": {"type": "fixed", "delay": 100}} if kind == "backs-off" else {}
            orders = Orders(kind="retries", work_ms=work, fails=self._random.randint(1, 2))
        elif kind == "fails":
            orders = Orders(kind="fails", work_ms=work)
        elif kind in {"waits", "delays"}:
            planned["kind"] = kind
            orders = Orders(kind=kind, work_ms=work)
        elif kind == "unkept":
            planned["kept"], opts["removeOnComplete"] = False, True
        elif kind == "slow":
            orders = Orders(work_ms=self._mix.slow_ms)
        elif kind in {LIMITED, NARROW}:
            planned["queue"] = kind
            orders = Orders(work_ms=round(self._random.uniform(5, self._mix.narrow_ms), 1) if kind == NARROW else work)
        return PlannedJob(**planned), opts, orders


def _data(orders: Orders) -> str:
    return msgspec.json.encode(orders).decode()
