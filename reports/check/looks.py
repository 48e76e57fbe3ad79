"""Further readings of suspicious places in a live store: a suspicion counts only if it stays.

A store that moves is read piece by piece, so a job may be seen in two containers or in none. Each look reads the keys
around every suspicion again, each at one instant, and runs the same checks on them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from conformance.checkers.production import StoreFacts, StoreView
from conformance.checkers.table import CHECKS
from conformance.observe.keyspace import RawKey, assemble, split_key
from conformance.observe.tables import Snapshot
from conformance.protocol.states import QUEUE_KEYS
from conformance.servers.connection import explain, explained
from reports.check.nearby import Asking, QueueNearby
from reports.check.server_facts import store_facts
from reports.check.store_check import ALL_CHECKS, CheckedSnapshot
from reports.check.suspicions import Suspicion, suspicions
from reports.snapshot.pace import Pace
from reports.snapshot.plan import RedisSource

AT_ONCE = 200
"""Suspicions of a queue that are judged together."""


@dataclass(frozen=True, kw_only=True)
class LooksAgain:
    """The outcome of all looks. `stayed`: with the time since when; `looks`: how many there were.

    `at_ms`: the time of the last look, Redis' clock, Unix ms.
    """

    stayed: list[Suspicion]
    looks: int
    at_ms: int


def look_again(
    source: RedisSource,
    found: CheckedSnapshot,
    *,
    settle_ms: float,
    sleep: Callable[[float], None] = time.sleep,
) -> LooksAgain:
    """Look immediately and, while anything stays, after half of the time to settle and at its end.

    Raises EnvironmentProblem.
    """
    remaining = found.tally.all_kept
    with explained(source.address), _explained_sockets(source), closing(Asking(source)) as asking:
        looks = 0
        for pause_ms in (0, settle_ms / 2, settle_ms / 2):
            if remaining:
                sleep(pause_ms / 1000)
                now = asking.now_ms()
                remaining = _since(_still_there(asking, remaining, found), now)
                looks += 1
        return LooksAgain(stayed=remaining, looks=looks, at_ms=asking.now_ms())


@contextmanager
def _explained_sockets(source: RedisSource) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(error, source.address, ", ".join(source.address.nodes)) from error


def _since(found: Iterable[Suspicion], now: int) -> list[Suspicion]:
    """Each with the time since when it is known to be so: the store's, else that of the first check of these keys."""
    return [each if each.since_ms is not None else replace(each, since_ms=now) for each in found]


def _still_there(asking: Asking, wanted: Sequence[Suspicion], first: CheckedSnapshot) -> Iterator[Suspicion]:
    by_queue: defaultdict[str, list[Suspicion]] = defaultdict(list)
    about_server = []
    for suspicion in wanted:
        if CHECKS[suspicion.check].scope == "server":
            about_server.append(suspicion)
        else:
            by_queue[_place(asking.source.prefix, suspicion)[0]].append(suspicion)
    facts = (
        store_facts(asking.source) if about_server else StoreFacts(is_cluster=asking.source.address.mode == "cluster")
    )
    pace = Pace(asking.source.keys_per_s or 0)
    if about_server:
        yield from _same(about_server, _view(asking, _settings(asking, first.queues), facts))
    for queue, listed in sorted(by_queue.items()):
        for start in range(0, len(listed), AT_ONCE):
            chosen = listed[start : start + AT_ONCE]
            before = asking.asked
            nearby = QueueNearby(asking, queue)
            keys = _around(nearby, chosen, first.largest.get(queue, 0))
            yield from _same(chosen, _view(asking, keys, replace(facts, events={queue: nearby.events})))
            pace.take((asking.asked - before) / 10)


def _place(prefix: str, suspicion: Suspicion) -> tuple[str, str]:
    """The queue and the rest of the key of a suspicion."""
    whole = split_key(prefix, suspicion.key)
    if whole[0]:
        return whole
    queue, _, rest = suspicion.key.partition(":")
    return queue, rest


def _view(asking: Asking, keys: Iterable[RawKey], facts: StoreFacts) -> StoreView:
    snapshot: Snapshot = assemble(asking.source.prefix, asking.now_ms(), keys)
    return StoreView(snapshot, facts)


def _same(wanted: Sequence[Suspicion], view: StoreView) -> Iterator[Suspicion]:
    """Those that this view shows as well, as it shows them."""
    before = {suspicion.identity: suspicion for suspicion in wanted}
    for again in suspicions(view, ALL_CHECKS):
        known = before.pop(again.identity, None)
        if known is not None:
            since = known.since_ms if known.since_ms is not None else again.since_ms
            yield replace(again, since_ms=since)


def _settings(asking: Asking, queues: Iterable[str]) -> list[RawKey]:
    found: list[RawKey] = []
    for queue in sorted(queues):
        nearby = QueueNearby(asking, queue)
        nearby.read_hash("meta")
        found += nearby.raw
    return found


def _around(nearby: QueueNearby, wanted: Sequence[Suspicion], largest: int) -> list[RawKey]:
    """Everything that the checks of these suspicions need."""
    prefix = nearby.asking.source.prefix
    nearby.read_singles()
    children: defaultdict[str, set[str]] = defaultdict(set)
    jobs: set[str] = {str(largest)} if largest else set()
    entries: dict[str, float] = {}
    for suspicion in wanted:
        rest = _place(prefix, suspicion)[1]
        if suspicion.key.startswith(f"{prefix}:{nearby.queue}:"):
            nearby.read_key(suspicion.key)
        elif rest not in QUEUE_KEYS:
            jobs.update(_named(nearby, suspicion, rest, entries))
        if suspicion.other:
            children[rest].add(suspicion.other)
            queue, child = split_key(prefix, suspicion.other)
            if queue == nearby.queue:
                jobs.add(child)
        if suspicion.check == "added-in-time" and suspicion.since_ms is not None:
            nearby.read_events(rest, int(suspicion.since_ms))
    jobs.update([job for place, job in sorted(nearby.lists["active"].items()) if place == 0])
    nearby.forget_samples(jobs)
    middles = nearby.middle_of_lists(jobs)
    nearby.read_jobs(sorted(jobs), children, middles)
    return [*nearby.collected(entries), *_elsewhere(nearby, wanted)]


def _named(nearby: QueueNearby, suspicion: Suspicion, rest: str, entries: dict[str, float]) -> Iterator[str]:
    """The jobs that a key names, which is read if it is not a job itself."""
    kind, _, name = rest.partition(":")
    if suspicion.place.startswith("dedup.") and kind in ("de", "dn"):
        owner = nearby.read_string(f"de:{name}")
        yield from [owner] if owner else []
        if kind == "dn":
            nearby.read_hash(rest)
            yield from nearby.active_jobs_of(name)
    elif kind == "repeat" and suspicion.place.startswith("scheduler."):
        yield from _read_scheduler(nearby, name, entries)
    elif kind == "repeat":
        yield rest
        list(_read_scheduler(nearby, name.rpartition(":")[0], entries))
    else:
        yield rest


def _read_scheduler(nearby: QueueNearby, scheduler: str, entries: dict[str, float]) -> Iterator[str]:
    """Read a scheduler; the job of its next iteration is named."""
    nearby.read_hash(f"repeat:{scheduler}")
    entry = nearby.entry_of(scheduler)
    if entry is not None:
        entries[scheduler] = entry
        yield f"repeat:{scheduler}:{entry:.0f}"


def _elsewhere(nearby: QueueNearby, wanted: Sequence[Suspicion]) -> list[RawKey]:
    """Children in other queues under the prefix."""
    prefix = nearby.asking.source.prefix
    by_queue: defaultdict[str, set[str]] = defaultdict(set)
    for suspicion in wanted:
        queue, child = split_key(prefix, suspicion.other)
        if queue and queue != nearby.queue:
            by_queue[queue].add(child)
    found: list[RawKey] = []
    for queue, jobs in sorted(by_queue.items()):
        other = QueueNearby(nearby.asking, queue)
        other.read_jobs(sorted(jobs), {}, {})
        found += other.collected({})
    return found
