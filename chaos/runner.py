"""One run: real clients on a real Redis, faults meanwhile, then healing, draining, rest, a snapshot, and all checks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.container_members import ContainerMember
from chaos.faults.registry import Fault
from chaos.harvest import Harvest
from chaos.members import CALL_DEADLINE_MS, Member
from chaos.memory import ProcessWatch
from chaos.observer import Observer
from chaos.producers import Producer
from chaos.recorder import Recorder, Watch
from chaos.redis_process import Persistence
from chaos.rest import final_snapshot, wait_for_rest
from chaos.stage import Stage
from chaos.topologies.base import Topology, TopologyName
from chaos.topologies.opening import open_topology
from chaos.workers import Clerk, WorkerMember
from chaos.workload import LIMITED, NARROW, NARROW_CONCURRENCY, QUEUES, RATE, Mix, Workload
from conformance.checkers.histories.base import Judgement
from conformance.checkers.histories.history import History
from conformance.checkers.histories.history_checks import check_history
from conformance.checkers.histories.lines import Bounds, Header, Phase
from conformance.environment.clients import Launch
from conformance.observe.tables import Snapshot
from conformance.observe.tap.tap import Tap
from conformance.upstream.manifest import load_manifest

LOCK_MS = 2000
STALLED_INTERVAL_MS = 1000
RENEWAL_LATE_MS = 2500
"""How much later than by the book a stalled job may be back: two workers' timers, and a busy machine."""
STALL_MS = LOCK_MS + 2 * STALLED_INTERVAL_MS + RENEWAL_LATE_MS
WORKER_OPTIONS: Mapping[str, Any] = {
    "lockDuration": LOCK_MS,
    "stalledInterval": STALLED_INTERVAL_MS,
    "maxStalledCount": 50,
    "concurrency": 4,
    "drainDelay": 1,
    "runRetryDelay": 1000,
}
"""BullMQ's defaults are 15 to 30 times as long, and in the same proportions. `maxStalledCount`: nobody is given up."""
DRAIN_DEADLINE_S = 45.0
LEAD_MS = 600
GAP_MS = 600
"""Between two faults: long enough to see that work goes on."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run. `duration_ms` is a least time: every fault gets its turn. `reproduce`: the command, for reports.

    `texts`: the official scripts by name, to know changed ones by likeness. `rounds`: how often each fault comes, and
    `hold_ms`: how long it is kept on, instead of its own wish. `mix`: the workload, instead of that of the faults.
    `pause_ms`: between two calls of a producer.
    """

    client: Launch
    faults: Sequence[Fault]
    topology: TopologyName = "single"
    duration_ms: float = 0
    seed: int = 0
    workers: int = 2
    producers: int = 1
    pause_ms: float = 15
    redis: str = ""
    out: Path | None = None
    reproduce: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    rounds: int | None = None
    hold_ms: float | None = None
    mix: Mix | None = None
    drain_s: float = DRAIN_DEADLINE_S
    partner: Launch | None = None
    """The client of the last worker, where it is another one: two clients, or two versions, share the queues."""
    image: str = ""
    """Run the workers in containers of this image instead of by the client's command."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `errors`: what the workers' error listeners were told last, by process."""

    spec: Spec
    history: History
    snapshot: Snapshot
    judgements: list[Judgement]
    errors: Mapping[str, list[str]]

    @property
    def failed(self) -> list[Judgement]:
        """The judgements that speak against the client."""
        return [judgement for judgement in self.judgements if judgement.verdict == "fail"]


def run_chaos(spec: Spec) -> Outcome:
    """Run, and judge. Raises a Problem where the run itself cannot be carried out."""
    with closing(Recorder(spec.out / "history.jsonl" if spec.out is not None else None)) as recorder:
        snapshot, errors = _carried_out(spec, recorder)
        history = recorder.finish()
    return Outcome(spec, history, snapshot, check_history(history, snapshot), errors)


def _carried_out(spec: Spec, recorder: Recorder) -> tuple[Snapshot, dict[str, list[str]]]:
    """The run itself: what was in Redis at its end, and what error listeners were told. Nobody records afterwards."""
    with ExitStack() as stack:
        stage = _set_up(spec, recorder, stack)
        observer = stack.enter_context(Observer(stage.topology, recorder, stage.prefix, QUEUES))
        stack.enter_context(Watch(recorder))
        stack.enter_context(
            ProcessWatch(recorder, lambda: {each.name: each.pid for each in stage.members if each.alive})
        )
        harvest = Harvest(stage.members, recorder)
        if spec.out is not None:
            stack.enter_context(harvest)
        _disturb(spec, stage)
        snapshot = _settle(spec, stage, observer)
        harvest.stop()
        harvest.collect(everything=True)
        return snapshot, {worker.member.name: worker.errors for worker in stage.workers}


def _set_up(spec: Spec, recorder: Recorder, stack: ExitStack) -> Stage:
    """Start Redis and all processes, and open all handles."""
    persistence: Persistence = next((one.persistence for one in spec.faults if one.persistence != "none"), "none")
    topology = stack.enter_context(open_topology(spec.topology, spec.redis, persistence))
    chance = random.Random(spec.seed)
    prefix = f"bc{random.SystemRandom().getrandbits(32):08x}"
    prefix = f"{{{prefix}}}" if topology.cluster else prefix
    recorder.begin(_header(spec, recorder, prefix))
    clerk = stack.enter_context(Clerk())
    mix = spec.mix or _mix_for(spec.faults)

    def member(name: str, client: Launch = spec.client, image: str = "") -> Member:
        tap = _tap(topology, spec, stack)
        made = (
            ContainerMember(name, client, tap, mode=spec.topology, seed=spec.seed, image=image)
            if image
            else Member(name, client, tap, mode=spec.topology, seed=spec.seed)
        )
        stack.callback(made.close)
        return made

    producers = [
        Producer(
            member(f"producer-{number}"),
            iter(Workload(spec.seed * 1000 + number, mix, label=f"p{number}-")),
            recorder,
            prefix,
            spec.pause_ms / 1000,
        )
        for number in range(1, spec.producers + 1)
    ]
    workers = [
        WorkerMember(member(f"worker-{number}", client, spec.image), recorder, clerk, prefix, dict(WORKER_OPTIONS))
        for number, client in enumerate(_worker_clients(spec), 1)
    ]
    stage = Stage(topology, producers, workers, recorder, prefix, STALL_MS, chance)
    stack.callback(stage.aborted.set)
    _start_all([each.member for each in producers])
    producers[0].set_limits()
    _start_all([each.member for each in workers])
    return stage


def _mix_for(faults: Sequence[Fault]) -> Mix:
    """The workload of a fault that has one of its own; of several only clocks insist: nothing may be delayed then."""
    own = (one.mix for one in faults if one.mix != Mix() and (len(faults) == 1 or one.group == "clocks"))
    return next(own, Mix())


def _worker_clients(spec: Spec) -> list[Launch]:
    """The client of each worker."""
    clients = [spec.client] * spec.workers
    return clients if spec.partner is None else [*clients[:-1], spec.partner]


def _tap(topology: Topology, spec: Spec, stack: ExitStack) -> Tap:
    names = {entry.sha1: name for name, entry in load_manifest().scripts.items()}
    return stack.enter_context(Tap(*topology.nodes, scripts=names, texts=spec.texts, cluster=topology.cluster))


def _start_all(members: Sequence[Member]) -> None:
    """Side by side: most of a start is waiting."""
    with ThreadPoolExecutor(len(members)) as pool:
        for started in [pool.submit(member.start) for member in members]:
            started.result()


def _header(spec: Spec, recorder: Recorder, prefix: str) -> Header:
    return Header(
        client=spec.client.name,
        topology=spec.topology,
        faults=[one.name for one in spec.faults],
        seed=spec.seed,
        prefix=prefix,
        unix_offset_ms=recorder.unix_offset_ms,
        bounds=Bounds(
            lock_ms=LOCK_MS,
            limits={LIMITED: RATE},
            concurrency={NARROW: NARROW_CONCURRENCY},
        ),
        reproduce=spec.reproduce,
    )


def _disturb(spec: Spec, stage: Stage) -> None:
    """The workload, and the nemesis: one fault after the other, in the order of the seed."""
    stage.recorder.put(Phase(at_ms=stage.recorder.now_ms(), name="workload"))
    begun = stage.recorder.now_ms()
    for producer in stage.producers:
        producer.start()
    stage.pause(LEAD_MS)
    for one in _turns(spec, stage):
        with one.act(stage):
            stage.pause(one.hold_ms if spec.hold_ms is None else spec.hold_ms)
        stage.pause(GAP_MS)
    while (left := begun + spec.duration_ms - stage.recorder.now_ms()) > 0:
        stage.pause(left)
    for producer in stage.producers:
        producer.stop()


def _turns(spec: Spec, stage: Stage) -> Iterator[Fault]:
    """Every fault as often as it wants to be; then, while there is time, any of them."""
    once = [one for one in spec.faults for _ in range(spec.rounds or one.times)]
    if len(spec.faults) > 1:
        stage.random.shuffle(once)
    ends = stage.recorder.now_ms() + spec.duration_ms - GAP_MS
    yield from once
    while spec.faults and stage.recorder.now_ms() < ends:
        yield stage.random.choice(list(spec.faults))


def _settle(spec: Spec, stage: Stage, observer: Observer) -> Snapshot:
    """Heal, drain, come to rest, and read everything."""
    put, now = stage.recorder.put, stage.recorder.now_ms
    for member in stage.members:
        member.thaw()
        member.ensure()
    for producer in stage.producers:
        producer.join(CALL_DEADLINE_MS / 1000)
    put(Phase(at_ms=now(), name="drain"))
    rest = wait_for_rest(
        stage.topology,
        stage.prefix,
        QUEUES,
        lambda: sum(len(worker.running) for worker in stage.workers),
        deadline_s=min(spec.drain_s, *(one.drain_s for one in spec.faults), DRAIN_DEADLINE_S),
    )
    put(Phase(at_ms=now(), name="quiescent" if rest.reached else "stuck", seen=rest.seen))
    observer.catch_up()
    return final_snapshot(stage.topology, stage.prefix)
