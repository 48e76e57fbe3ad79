"""What a fault leaves behind in a client: who is heard of again, closing, event readers, connections, memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from conformance.checkers.histories.base import (
    CheckStatistics,
    HistoryCheck,
    HistoryFinding,
    Inapplicable,
    Judged,
    Undecided,
)
from conformance.checkers.histories.evidence import (
    CALLS_AFTER_HEALING,
    ENTRIES_AFTER_HEALING,
    KIT,
    REDIS,
    CallHistory,
    Evidence,
    entry_number,
)
from conformance.checkers.histories.history import (
    EventReported,
    Fail,
    HandleChanged,
    History,
    Ok,
    ResourceSample,
    ScriptLine,
    StreamEventLine,
)

FEW_CALLS = 5
FAILING_SHARE = 0.25
"""So many calls, and so large a part of them, do not fail by chance when nothing is wrong any more."""
MANY_RUNS = 60
"""So many runs began elsewhere that a worker that lives had to get one of them."""
GETS_ONE_WITHIN_MS = 3000
"""A worker that is let run for so long, all in all, gets one of the jobs that wait all that time."""
TAKES_TIME_MS = 1000
"""How long after the call of close a worker may still ask for jobs: it has to hear of the call first."""
SIGNS_OF_LIFE = 50
"""Who tells of so many entries, or begins so many runs, meanwhile is let run."""
CLOSES_WITHIN_MS = 5000
"""So long may a close take on a machine that lets everybody run: jobs in hand take a third of a second."""
TELLS_AFTER_MS = 3000
"""How long a reader may take to tell of an entry."""
MOST_GROWTH = 1.5
LEAST_GROWTH_BYTES = 32 * 1024 * 1024
"""Less than this is no growth: caches fill, heaps are not given back at once."""
KEPT_JOB_BYTES = 2048
"""Of a finished job that Redis keeps, with what there is beside its hash: an hour of jobs took 0.9 KiB each."""
FEWEST_SAMPLES = 20
NODES_OF_A_CLUSTER = 3


def _recovery(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """After the last fault every producer's calls succeed again, of each kind, and every worker gets jobs again."""
    yield from _producers(evidence, statistics)
    yield from _workers(evidence, statistics)


def _producers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    after = [call for call in evidence.calls.values() if call.invocation.at_ms >= evidence.healed_ms]
    kinds: defaultdict[tuple[str, str, str], list[CallHistory]] = defaultdict(list)
    succeeded = dict.fromkeys((call.invocation.process for call in evidence.calls.values()), 0)
    for call in after:
        if isinstance(call.completion, Fail) and call.completion.unsupported:
            continue
        invocation = call.invocation
        succeeded[invocation.process] += isinstance(call.completion, Ok)
        if invocation.at_ms >= evidence.resumed_ms:
            kinds[invocation.process, invocation.op, str(invocation.args.get("queue", ""))].append(call)
    for (process, op, queue), calls in kinds.items():
        yield from _failing(f"{op} of {process} on {queue}", calls)
    for process, count in succeeded.items():
        statistics.count()
        if count < CALLS_AFTER_HEALING and evidence.is_full:
            yield Undecided(f"{count} calls of {process} succeeded after the last fault")


def _failing(who: str, calls: Sequence[CallHistory]) -> Iterator[HistoryFinding]:
    """Whether many of the calls fail although nothing is wrong any more."""
    answered = [call for call in calls if call.completion is not None]
    failed = [call for call in answered if not isinstance(call.completion, Ok)]
    if len(failed) >= FEW_CALLS and len(failed) >= FAILING_SHARE * len(answered):
        errors = {getattr(call.completion, "error", "") for call in failed}
        message = f"{who}: {len(failed)} of {len(answered)} calls failed: {'; '.join(sorted(errors)[:2])}"
        lines = tuple(line for call in failed[:3] for line in (call.invocation, call.completion) if line is not None)
        yield HistoryFinding(message=message, lines=lines)


def _workers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """Each worker of a queue got a job, or so many were run by the others that it must be dead."""
    opened = [line for line in evidence.handles if line.role == "worker" and line.change == "opened"]
    for process, queue in dict.fromkeys((line.process, line.queue) for line in opened):
        runs = [run.started for run in evidence.runs if run.started.queue == queue]
        own = [run.at_ms for run in runs if run.process == process and run.at_ms > evidence.healed_ms]
        others = [run for run in runs if run.process != process and run.at_ms > evidence.resumed_ms]
        added = _added_ms(evidence, queue)
        # A job that it had asked for before the fault is no sign of life where nobody gets any other.
        all_stand_still = not others and len(added) >= MANY_RUNS and max(own, default=0) <= evidence.resumed_ms
        if own and not all_stand_still:
            statistics.count()
            continue
        signs = [run.at_ms for run in others] if len(others) >= MANY_RUNS else added
        if len(signs) < MANY_RUNS:
            continue
        message = f"{process} got no job of {queue} after the last fault, the others got {len(others)} of {len(added)}"
        if _hardly_let_run(evidence, signs[0], signs[-1]):
            yield Undecided(f"{message}, on a machine that starved")
        else:
            yield HistoryFinding(message=message, lines=tuple(others[-3:]))


def _added_ms(evidence: Evidence, queue: str) -> list[float]:
    """When jobs of a queue were acknowledged after the last fault, and after the time that recovery may take."""
    return [
        job.acknowledged_ms
        for job in evidence.jobs
        if job.queue == queue and job.acknowledged_ms is not None and job.acknowledged_ms > evidence.resumed_ms
    ]


def _hardly_let_run(evidence: Evidence, since_ms: float, until_ms: float) -> bool:
    """Whether the machine let nobody run for most of an interval, and what is left is not long enough to get a job."""
    starved_ms = evidence.starved_ms(since_ms, until_ms)
    awake_ms = until_ms - since_ms - starved_ms
    return awake_ms < min(starved_ms, GETS_ONE_WITHIN_MS)


def _closing(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A worker that is closed ends the jobs that it has in hand first, takes none any more, and comes to its end."""
    workers = [line for line in evidence.handles if line.role == "worker"]
    for position, line in enumerate(workers):
        if line.change != "closing":
            continue
        later = [
            other for other in workers[position + 1 :] if (other.process, other.queue) == (line.process, line.queue)
        ]
        if not later:
            yield Undecided(f"{line.process} was closed, and the run ended")
        elif later[0].change == "absent":
            yield Inapplicable(f"{line.process} cannot be closed: {later[0].error}")
        else:
            statistics.count()
            yield from _one_close(evidence, line, later, statistics)


def _one_close(
    evidence: Evidence, closing: HandleChanged, later: Sequence[HandleChanged], statistics: CheckStatistics
) -> Iterator[Judged]:
    place, end = f"{closing.process} on {closing.queue}", later[0]
    runs = [
        run for run in evidence.runs if (run.started.process, run.started.queue) == (closing.process, closing.queue)
    ]
    in_hand = [run for run in runs if run.started.at_ms <= closing.at_ms < run.ended_ms]
    statistics.seen["closes with jobs in hand"] += bool(in_hand)
    if end.change != "closed":
        awake_ms = end.at_ms - closing.at_ms - evidence.starved_ms(closing.at_ms, end.at_ms)
        was_let_run = awake_ms >= CLOSES_WITHIN_MS or _signs_of_life(evidence, closing, end) >= SIGNS_OF_LIFE
        if evidence.hurt(closing.at_ms, end.at_ms) or not was_let_run:
            yield Undecided(f"close of {place} did not end, and a fault was on or the machine starved")
        else:
            message = f"close of {place} did not end within {end.at_ms - closing.at_ms:.0f} ms: {end.error}"
            yield HistoryFinding(message=message, lines=(closing, end))
        return
    statistics.keep_maximum("longest close (ms)", end.at_ms - closing.at_ms)
    reopened = later[1].at_ms if len(later) > 1 else float("inf")
    left = [run.started for run in runs if run.started.at_ms <= end.at_ms < run.ended_ms]
    if left:
        jobs = ", ".join(run.job for run in left)
        yield HistoryFinding(message=f"{place} was closed, and still ran {jobs}", lines=(closing, end, *left[:3]))
    taken = [run.started for run in runs if end.at_ms < run.started.at_ms < reopened]
    if taken:
        message = f"{place} was closed, and took {len(taken)} jobs afterwards"
        yield HistoryFinding(message=message, lines=(closing, end, *taken[:3]))
    late = [
        line for line in _claims(evidence, closing) if closing.at_ms + TAKES_TIME_MS < (line.sent_ms or 0) < reopened
    ]
    allowed = evidence.waited_ms(closing.process, closing.at_ms, end.at_ms)
    if late and not allowed and not evidence.excused(closing.at_ms, late[0].at_ms):
        message = f"{place} was asked to close, and claimed {len(late)} jobs more than a second later"
        yield HistoryFinding(message=message, lines=(closing, *late[:3]))


def _signs_of_life(evidence: Evidence, closing: HandleChanged, end: HandleChanged) -> int:
    """How much the process did on its other handles when it had had enough time to close this one."""
    since = closing.at_ms + CLOSES_WITHIN_MS
    told = sum(line.process == closing.process and since < line.at_ms < end.at_ms for line in evidence.reported)
    runs = (run.started for run in evidence.runs if run.started.process == closing.process)
    return told + sum(since < run.at_ms < end.at_ms for run in runs)


def _claims(evidence: Evidence, closing: HandleChanged) -> list[ScriptLine]:
    return [
        line
        for line in evidence.history.lines
        if isinstance(line, ScriptLine)
        and line.claimed
        and (line.process, line.queue) == (closing.process, closing.queue)
    ]


def _event_readers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A reader tells of every entry that the stream still has, once, in the order of the stream, through every fault.

    From the first that it told of. Entries that a fault may have lost are not asked for.
    """
    opened = [line for line in evidence.handles if line.role == "events"]
    if opened and all(line.change == "absent" for line in opened):
        yield Inapplicable(f"the client has no event reader: {opened[0].error}")
        return
    streams = {queue: _Stream.of(evidence, queue) for queue in {line.queue for line in opened}}
    told = _told_by_process(evidence)
    for process, queue in dict.fromkeys((line.process, line.queue) for line in opened):
        epochs = [line.at_ms for line in opened if line.process == process and line.change == "opened"]
        for number, entries in enumerate(_by_epoch(told[process], epochs), start=1):
            is_last = number == len(epochs)
            yield from _one_reader(evidence, process, streams[queue], entries, statistics, is_last=is_last)


def _told_by_process(evidence: Evidence) -> dict[str, list[EventReported]]:
    told: dict[str, list[EventReported]] = defaultdict(list)
    for line in evidence.reported:
        told[line.process].append(line)
    return told


def _by_epoch(told: Sequence[EventReported], epochs: Sequence[float]) -> list[list[EventReported]]:
    """What a reader told of since it was opened at each of these times, until the next."""
    parts: list[list[EventReported]] = [[] for _ in epochs]
    for line in told:
        if since := bisect_right(epochs, line.at_ms):
            parts[since - 1].append(line)
    return parts


@dataclass(frozen=True)
class _Stream:
    """The entries of a queue's stream in their order, and their numbers, so that a part of them is found at once."""

    queue: str
    entries: list[StreamEventLine]
    numbers: list[tuple[int, int]]

    @staticmethod
    def of(evidence: Evidence, queue: str) -> _Stream:
        entries = [event for event, _ in evidence.events_by_queue.get(queue, [])]
        return _Stream(queue, entries, [entry_number(event.entry) for event in entries])

    def after(self, number: tuple[int, int]) -> list[StreamEventLine]:
        return self.entries[bisect_right(self.numbers, number) :]

    def between(self, first: tuple[int, int], last: tuple[int, int]) -> list[StreamEventLine]:
        """The entries behind the first and before the last."""
        return self.entries[bisect_right(self.numbers, first) : bisect_left(self.numbers, last)]


def _one_reader(
    evidence: Evidence,
    process: str,
    stream: _Stream,
    told: Sequence[EventReported],
    statistics: CheckStatistics,
    *,
    is_last: bool,
) -> Iterator[Judged]:
    who = f"the reader of {process}"
    for _ in told:
        statistics.count()
    yield from _in_stream_order(who, told)
    if is_last:
        after = sum(line.at_ms > evidence.healed_ms for line in told)
        if after < ENTRIES_AFTER_HEALING and evidence.is_full:
            yield Undecided(f"{who} told of {after} entries after the last fault")
    if told:
        yield from _left_out(evidence, who, stream, told, is_last=is_last)


def _in_stream_order(who: str, told: Sequence[EventReported]) -> Iterator[HistoryFinding]:
    seen: set[str] = set()
    latest = (0, 0)
    for line in told:
        if line.entry in seen:
            yield HistoryFinding(message=f"{who} told twice of {line.name} ({line.entry})", lines=(line,))
        elif entry_number(line.entry) < latest:
            yield HistoryFinding(message=f"{who} told of {line.name} ({line.entry}) after a later entry", lines=(line,))
        seen.add(line.entry)
        latest = max(latest, entry_number(line.entry))


def _left_out(
    evidence: Evidence, who: str, stream: _Stream, told: Sequence[EventReported], *, is_last: bool
) -> Iterator[Judged]:
    """Entries of kinds that it tells of, which it did not, from its first one on; at the end none may be due."""
    first, last = entry_number(told[0].entry), max(entry_number(line.entry) for line in told)
    entries, names = {line.entry for line in told}, {line.name for line in told}
    end_ms = evidence.history.lines[-1].at_ms
    due = [event for event in stream.after(last) if event.at_ms < end_ms - TELLS_AFTER_MS] if is_last else []
    missed = [
        event
        for event in [*stream.between(first, last), *due]
        if event.entry not in entries and event.name in names and not evidence.was_lost(event.at_ms)
    ]
    unread = [event for event in missed if entry_number(event.entry) > last]
    if missed and len(unread) == len(missed) and evidence.starved(unread[0].at_ms, end_ms):
        yield Undecided(f"{who} had not told of {len(unread)} entries at the end, on a machine that starved")
    elif missed:
        message = f"{who} left out {len(missed)} entries, first {missed[0].name} of job {missed[0].job}"
        yield HistoryFinding(message=message, job=f"{stream.queue}:{missed[0].job}", lines=_neighbours(missed, told))


def _neighbours(
    missed: Sequence[StreamEventLine], told: Sequence[EventReported]
) -> tuple[StreamEventLine | EventReported, ...]:
    """What was told last before the first of them, they themselves, and what was told next."""
    gap = entry_number(missed[0].entry)
    before = [line for line in told if entry_number(line.entry) < gap]
    after = [line for line in told if entry_number(line.entry) > gap]
    return (*before[-1:], *missed[:5], *after[:1])


def _connections(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """When all is over, a process has about as many connections to Redis open as it had before the first fault.

    A pool may have grown by half, or by one for each handle (redis-py opens another for `addBulk` and for a flow while
    one is in use): those of the queues, and the one that adds flows; in a cluster connections are opened node by node.
    """
    flows = any(call.invocation.op == "flow.add" for call in evidence.calls.values())
    handles = len(evidence.events_by_queue) + flows
    samples = [sample for sample in evidence.samples if sample.connections]
    first = min((window.began_ms for window in evidence.faults), default=float("inf"))
    before = [sample for sample in samples if sample.at_ms < first]
    if not before or samples[-1] is before[0]:
        return
    nodes = NODES_OF_A_CLUSTER if evidence.history.header.topology == "cluster" else 1
    for process, now in samples[-1].connections.items():
        then = before[0].connections.get(process)
        if then is None:
            continue
        statistics.count()
        statistics.keep_maximum("most connections more than before", now - then)
        if now > nodes * then + max(2, then // 2, handles):
            message = f"{process} has {now} connections open, before the first fault it had {then}"
            yield HistoryFinding(message=message, lines=(before[0], samples[-1]))


def _memory(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """The memory of a process does not grow by half (and 32 MiB) while it does the same all the time.

    Redis may grow by the jobs that it is given to keep as well.
    """
    sampled = {name for sample in evidence.samples for name in sample.memory} - {KIT}
    judged = [name for name, series in _memory_series(evidence.history).items() if len(series) >= FEWEST_SAMPLES]
    for name in judged:
        statistics.seen["processes with a history of memory"] += name != KIT
    if sampled and set(judged) <= {KIT}:
        yield Undecided(f"the run is shorter than the {FEWEST_SAMPLES} samples that are needed")
    for name, much in growth(evidence.history, kept_jobs=len(evidence.jobs)).items():
        yield HistoryFinding(message=f"{name} grew from {much}")
    for _ in sampled:
        statistics.count()


def growth(history: History, *, kept_jobs: int = 0) -> dict[str, str]:
    """Processes of the client whose memory grew, with how much. The kit keeps the history, and is not judged.

    The median of the last fifth is compared with that of the second; a process with few samples is not judged.
    `kept_jobs`: how many jobs Redis may have been given to keep, of 2 KiB each.
    """
    found = {}
    for name, series in _memory_series(history).items():
        if name == KIT or len(series) < FEWEST_SAMPLES:
            continue
        fifth = len(series) // 5
        before, after = median(series[fifth : 2 * fifth]), median(series[-fifth:])
        kept = KEPT_JOB_BYTES * kept_jobs if name == REDIS else 0
        if after > before * MOST_GROWTH and after - before > LEAST_GROWTH_BYTES + kept:
            found[name] = f"{before / 2**20:.0f} MiB to {after / 2**20:.0f} MiB"
    return found


def _memory_series(history: History) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for line in history.lines:
        if isinstance(line, ResourceSample):
            for name, size in line.memory.items():
                sizes.setdefault(name, []).append(size)
    return sizes


RECOVERY_CHECKS = (
    HistoryCheck(name="recovery", predicate=_recovery, even_torn=True, least=3),
    HistoryCheck(name="closing", predicate=_closing, least_seen={"closes with jobs in hand": 1}),
    HistoryCheck(name="event-readers", predicate=_event_readers, least=ENTRIES_AFTER_HEALING),
    HistoryCheck(name="connections", predicate=_connections, even_torn=True, least=2),
    HistoryCheck(name="memory", predicate=_memory, even_torn=True),
)
