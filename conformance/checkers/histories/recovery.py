"""After the last fault: recovery of producers and workers, closing, event readers, connections, memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
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
    RunHistory,
    entry_number,
)
from conformance.checkers.histories.history import (
    EventReported,
    Fail,
    HandleChanged,
    History,
    Ok,
    ResourceSample,
    RunStarted,
    ScriptLine,
    StreamEventLine,
)

FEW_CALLS = 5
FAILING_SHARE = 0.25
"""Failed calls, as a number and as a share of all: fewer may fail by chance although nothing is wrong any more."""
MANY_RUNS = 60
"""Runs in other processes after which a live worker must have got a job, too."""
GETS_ONE_WITHIN_MS = 3000
"""CPU time after which a worker must have got one of the jobs that wait all that time."""
TAKES_TIME_MS = 1000
"""How long after the call of close a worker may still claim jobs: the call has to reach it first."""
SIGNS_OF_LIFE = 50
"""A process that reports this many entries, or starts this many runs, in the meantime is not starved of CPU."""
CLOSES_WITHIN_MS = 5000
"""How long a close may take on a machine that is not overloaded: a job in hand takes a third of a second."""
TELLS_AFTER_MS = 3000
"""How long a reader may take to report an entry."""
MOST_GROWTH = 1.5
LEAST_GROWTH_BYTES = 32 * 1024 * 1024
"""Smaller growth does not count: caches fill, and heaps are not given back at once."""
KEPT_JOB_BYTES = 2048
"""Memory of a finished job that Redis keeps, with all its keys. Measured over an hour of jobs: 0.9 KiB each."""
FEWEST_SAMPLES = 20
NODES_OF_A_CLUSTER = 3
MOST_CROSSED = 3
"""This many commands that a node has refused after ASK, and fewer that it has served, show a lack of ASKING."""


def _recovery(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """After the last fault every producer's calls succeed again, of each kind, and every worker gets jobs again."""
    yield from _producers(evidence, statistics)
    yield from _workers(evidence, statistics)


def _producers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    # Calls that started during a fault may rightly fail.
    after = [call for call in evidence.calls.values() if call.invocation.at_ms >= evidence.healed_ms]
    kinds: defaultdict[tuple[str, str, str], list[CallHistory]] = defaultdict(list)
    succeeded = dict.fromkeys((call.invocation.process for call in evidence.calls.values()), 0)
    for call in after:
        # An operation that the client lacks fails on purpose.
        if isinstance(call.completion, Fail) and call.completion.unsupported:
            continue
        invocation = call.invocation
        succeeded[invocation.process] += isinstance(call.completion, Ok)
        # Failures directly after the healing are part of the recovery.
        if invocation.at_ms >= evidence.resumed_ms:
            kinds[invocation.process, invocation.op, str(invocation.args.get("queue", ""))].append(call)
    for (process, op, queue), calls in kinds.items():
        yield from _failing(f"{op} of {process} on {queue}", calls)
    for process, count in succeeded.items():
        statistics.count()
        if count < CALLS_AFTER_HEALING and evidence.is_full:
            yield Undecided(f"{count} calls of {process} succeeded after the last fault")


def _failing(who: str, calls: Sequence[CallHistory]) -> Iterator[HistoryFinding]:
    """A finding if many of the calls fail although nothing is wrong any more."""
    answered = [call for call in calls if call.completion is not None]
    failed = [call for call in answered if not isinstance(call.completion, Ok)]
    # Both a number and a share: a few failures of a busy producer are chance, and so are all of two calls.
    if len(failed) >= FEW_CALLS and len(failed) >= FAILING_SHARE * len(answered):
        errors = {getattr(call.completion, "error", "") for call in failed}
        message = f"{who}: {len(failed)} of {len(answered)} calls failed: {'; '.join(sorted(errors)[:2])}"
        lines = tuple(line for call in failed[:3] for line in (call.invocation, call.completion) if line is not None)
        yield HistoryFinding(message=message, lines=lines)


def _workers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """Each worker of a queue got a job, unless the other workers ran too few to conclude that it is dead."""
    opened = [line for line in evidence.handles if line.role == "worker" and line.change == "opened"]
    for process, queue in dict.fromkeys((line.process, line.queue) for line in opened):
        work = _Work.of(evidence, process, queue)
        if work.is_active(evidence.resumed_ms):
            statistics.count()
        else:
            yield from _idle_worker(evidence, work)


@dataclass(frozen=True)
class _Work:
    """The work on a queue after the last fault: of one process, and of all others."""

    process: str
    queue: str
    own_ms: list[float]
    """When this process started runs, from the end of the last fault on."""
    others: list[RunStarted]
    """Runs in other processes, from the end of the time that recovery may take."""
    added_ms: list[float]
    """When jobs were acknowledged, from the end of the time that recovery may take."""

    @staticmethod
    def of(evidence: Evidence, process: str, queue: str) -> _Work:
        runs = [run.started for run in evidence.runs if run.started.queue == queue]
        return _Work(
            process,
            queue,
            # From the healing on: a first run soon after it already shows that the worker lives.
            own_ms=[run.at_ms for run in runs if run.process == process and run.at_ms > evidence.healed_ms],
            # Only after the time for recovery: until then other workers may just have been faster.
            others=[run for run in runs if run.process != process and run.at_ms > evidence.resumed_ms],
            added_ms=_added_ms(evidence, queue),
        )

    def is_active(self, resumed_ms: float) -> bool:
        # A worker may have claimed its last job before the fault. If no worker gets any other, that one proves nothing.
        all_stand_still = (
            not self.others and len(self.added_ms) >= MANY_RUNS and max(self.own_ms, default=0) <= resumed_ms
        )
        return bool(self.own_ms) and not all_stand_still


def _idle_worker(evidence: Evidence, work: _Work) -> Iterator[Judged]:
    """A finding if enough jobs were there for the worker, and the machine let it run for long enough to get one."""
    # If no other worker ran enough either, the jobs that were added are the chances that it had.
    chances_ms = [run.at_ms for run in work.others] if len(work.others) >= MANY_RUNS else work.added_ms
    if len(chances_ms) < MANY_RUNS:
        return
    message = (
        f"{work.process} got no job of {work.queue} after the last fault, "
        f"the others got {len(work.others)} of {len(work.added_ms)}"
    )
    if _hardly_let_run(evidence, work.process, chances_ms[0], chances_ms[-1]):
        yield Undecided(f"{message}, on a machine that starved")
    else:
        yield HistoryFinding(message=message, lines=tuple(work.others[-3:]))


def _added_ms(evidence: Evidence, queue: str) -> list[float]:
    """When jobs of a queue were acknowledged after the last fault, and after the time that recovery may take."""
    return [
        job.acknowledged_ms
        for job in evidence.jobs
        if job.queue == queue and job.acknowledged_ms is not None and job.acknowledged_ms > evidence.resumed_ms
    ]


def _hardly_let_run(evidence: Evidence, process: str, since_ms: float, until_ms: float) -> bool:
    """Whether a process was starved for most of an interval, and the rest is too short to get a job."""
    starved_ms = evidence.starved_ms(since_ms, until_ms, process=process)
    awake_ms = until_ms - since_ms - starved_ms
    # A job needs little time, so starvation that was shorter than the rest of the interval does not excuse the worker.
    return awake_ms < min(starved_ms, GETS_ONE_WITHIN_MS)


def _closing(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A worker that is closed first finishes the jobs that it has in hand, claims no further jobs, and then ends.

    It runs every job that it has fetched.
    """
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
            yield from _judge_close(evidence, _Close.of(evidence, line, later), statistics)


@dataclass(frozen=True)
class _Close:
    """One close of a worker: its call, how it ended, and the runs of that worker."""

    closing: HandleChanged
    end: HandleChanged
    reopened_ms: float
    """When the worker was opened again; infinite if it was not."""
    runs: list[RunHistory]

    @staticmethod
    def of(evidence: Evidence, closing: HandleChanged, later: Sequence[HandleChanged]) -> _Close:
        """`later`: what became of this handle afterwards, at least one line."""
        handle = (closing.process, closing.queue)
        runs = [run for run in evidence.runs if (run.started.process, run.started.queue) == handle]
        return _Close(closing, later[0], later[1].at_ms if len(later) > 1 else float("inf"), runs)

    @property
    def place(self) -> str:
        return f"{self.closing.process} on {self.closing.queue}"

    @property
    def took_ms(self) -> float:
        return self.end.at_ms - self.closing.at_ms

    def runs_at(self, at_ms: float) -> list[RunStarted]:
        """The runs that had started and not ended at a time."""
        return [run.started for run in self.runs if run.started.at_ms <= at_ms < run.ended_ms]


def _judge_close(evidence: Evidence, close: _Close, statistics: CheckStatistics) -> Iterator[Judged]:
    statistics.seen["closes with jobs in hand"] += bool(close.runs_at(close.closing.at_ms))
    if close.end.change != "closed":
        # Without a finished close, runs after it prove nothing.
        yield _unfinished_close(evidence, close)
        return
    statistics.keep_maximum("longest close (ms)", close.took_ms)
    yield from _runs_after_close(close)
    yield from _claims_after_close(evidence, close)
    yield from _dropped_by_close(evidence, close)


def _unfinished_close(evidence: Evidence, close: _Close) -> Judged:
    """A finding if the close had the CPU time that it needs, and no fault was on."""
    since_ms, until_ms = close.closing.at_ms, close.end.at_ms
    # The time in which nothing could run does not count against the close.
    awake_ms = close.took_ms - evidence.starved_ms(since_ms, until_ms, process=close.closing.process)
    # Starvation is measured for the whole machine. A process that did other work meanwhile was not starved itself.
    was_let_run = awake_ms >= CLOSES_WITHIN_MS or _signs_of_life(evidence, close.closing, close.end) >= SIGNS_OF_LIFE
    if evidence.hurt(since_ms, until_ms, process=close.closing.process) or not was_let_run:
        return Undecided(f"close of {close.place} did not end, and a fault was on or the machine starved")
    message = f"close of {close.place} did not end within {close.took_ms:.0f} ms: {close.end.error}"
    return HistoryFinding(message=message, lines=(close.closing, close.end))


def _runs_after_close(close: _Close) -> Iterator[HistoryFinding]:
    still_running = close.runs_at(close.end.at_ms)
    if still_running:
        jobs = ", ".join(run.job for run in still_running)
        message = f"{close.place} was closed, and still ran {jobs}"
        yield HistoryFinding(message=message, lines=(close.closing, close.end, *still_running[:3]))
    # Only until it is opened again: from then on the worker may take jobs.
    taken = [run.started for run in close.runs if close.end.at_ms < run.started.at_ms < close.reopened_ms]
    if taken:
        message = f"{close.place} was closed, and took {len(taken)} jobs afterwards"
        yield HistoryFinding(message=message, lines=(close.closing, close.end, *taken[:3]))


def _claims_after_close(evidence: Evidence, close: _Close) -> Iterator[HistoryFinding]:
    called_ms = close.closing.at_ms
    late = [
        line
        for line in _claims(evidence, close.closing)
        # A claim may already be on its way when close is called, so the first second is not judged.
        if called_ms + TAKES_TIME_MS < (line.sent_ms or 0) < close.reopened_ms
    ]
    process = close.closing.process
    waited_for_cpu = evidence.waited_ms(process, called_ms, close.end.at_ms)
    # Waiting for CPU could delay the close on its way to the worker.
    if late and not waited_for_cpu and not evidence.excused(called_ms, late[0].at_ms, process=process):
        message = f"{close.place} was asked to close, and claimed {len(late)} jobs more than a second later"
        yield HistoryFinding(message=message, lines=(close.closing, *late[:3]))


def _dropped_by_close(evidence: Evidence, close: _Close) -> Iterator[HistoryFinding]:
    """Jobs that the worker fetched shortly before it was closed or in the meantime, and did not run."""
    since_ms, until_ms = close.closing.at_ms - TAKES_TIME_MS, close.end.at_ms
    dropped = [
        line
        for line in _claims(evidence, close.closing)
        if line.accepted
        and since_ms < line.at_ms < until_ms
        and not any(run.started.job == line.claimed and run.started.at_ms >= _sent_ms(line) for run in close.runs)
    ]
    # A reply may be lost on its way to a process that a fault touches.
    if dropped and not evidence.excused(since_ms, until_ms, process=close.closing.process):
        message = f"{close.place} was closed, and {len(dropped)} jobs that it had fetched did not run"
        yield HistoryFinding(message=message, lines=(close.closing, close.end, *dropped[:3]))


def _sent_ms(line: ScriptLine) -> float:
    return line.sent_ms if line.sent_ms is not None else line.at_ms


def _signs_of_life(evidence: Evidence, closing: HandleChanged, end: HandleChanged) -> int:
    """Entries reported and runs started by the process on its other handles, after the time that a close may take."""
    since = closing.at_ms + CLOSES_WITHIN_MS
    entries = sum(line.process == closing.process and since < line.at_ms < end.at_ms for line in evidence.reported)
    runs = (run.started for run in evidence.runs if run.started.process == closing.process)
    return entries + sum(since < run.at_ms < end.at_ms for run in runs)


def _claims(evidence: Evidence, closing: HandleChanged) -> list[ScriptLine]:
    return [
        line
        for line in evidence.history.lines
        if isinstance(line, ScriptLine)
        and line.claimed
        and (line.process, line.queue) == (closing.process, closing.queue)
    ]


def _event_readers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A reader reports every entry that the stream still has, once, in the order of the stream, through every fault.

    This counts from its first report on. Entries that a fault may have lost are not required.
    """
    opened = [line for line in evidence.handles if line.role == "events"]
    if opened and all(line.change == "absent" for line in opened):
        yield Inapplicable(f"the client has no event reader: {opened[0].error}")
        return
    streams = {queue: _Stream.of(evidence, queue) for queue in {line.queue for line in opened}}
    reports = _reports_by_process(evidence)
    for process, queue in dict.fromkeys((line.process, line.queue) for line in opened):
        # Every opening starts a new reader, which may rightly start with the newest entry.
        epochs = [line.at_ms for line in opened if line.process == process and line.change == "opened"]
        for number, entries in enumerate(_by_epoch(reports[process], epochs), start=1):
            is_last = number == len(epochs)
            yield from _judge_reader(evidence, process, streams[queue], entries, statistics, is_last=is_last)


def _reports_by_process(evidence: Evidence) -> dict[str, list[EventReported]]:
    reports: dict[str, list[EventReported]] = defaultdict(list)
    for line in evidence.reported:
        reports[line.process].append(line)
    return reports


def _by_epoch(reports: Sequence[EventReported], epochs: Sequence[float]) -> list[list[EventReported]]:
    """The reports of a reader, split by the times at which it was opened."""
    parts: list[list[EventReported]] = [[] for _ in epochs]
    for line in reports:
        if since := bisect_right(epochs, line.at_ms):
            parts[since - 1].append(line)
    return parts


@dataclass(frozen=True)
class _Stream:
    """The entries of a queue's stream in order, and their numbers for binary search."""

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


def _judge_reader(
    evidence: Evidence,
    process: str,
    stream: _Stream,
    reports: Sequence[EventReported],
    statistics: CheckStatistics,
    *,
    is_last: bool,
) -> Iterator[Judged]:
    who = f"the reader of {process}"
    for _ in reports:
        statistics.count()
    yield from _in_stream_order(who, reports)
    if is_last:
        # Only the last reader exists after the last fault.
        after = sum(line.at_ms > evidence.healed_ms for line in reports)
        if after < ENTRIES_AFTER_HEALING and evidence.is_full:
            yield Undecided(f"{who} reported {after} entries after the last fault")
    if reports:
        yield from _left_out(evidence, process, stream, reports, is_last=is_last)


def _in_stream_order(who: str, reports: Sequence[EventReported]) -> Iterator[HistoryFinding]:
    seen: set[str] = set()
    latest = (0, 0)
    for line in reports:
        if line.entry in seen:
            yield HistoryFinding(message=f"{who} reported {line.name} ({line.entry}) twice", lines=(line,))
        elif entry_number(line.entry) < latest:
            yield HistoryFinding(
                message=f"{who} reported {line.name} ({line.entry}) after a later entry", lines=(line,)
            )
        seen.add(line.entry)
        # The maximum, so that one entry out of order is reported once and not all that follow it.
        latest = max(latest, entry_number(line.entry))


def _left_out(
    evidence: Evidence, process: str, stream: _Stream, reports: Sequence[EventReported], *, is_last: bool
) -> Iterator[Judged]:
    """Entries that the reader did not report, of the kinds that it reports, from its first report on.

    Up to the end of the history for the last epoch of a reader (`is_last`), else up to its last report.
    """
    who, last = f"the reader of {process}", max(entry_number(line.entry) for line in reports)
    end_ms = evidence.history.lines[-1].at_ms
    missed = _missed_entries(evidence, stream, reports, until_ms=end_ms if is_last else None)
    unread = [event for event in missed if entry_number(event.entry) > last]
    # A reader that only lags at the end may still be starved; a gap in the middle is a loss, however slow the machine.
    if missed and len(unread) == len(missed):
        message = f"{who} had not reported {len(unread)} entries at the end"
        if evidence.starved(unread[0].at_ms, end_ms, process=process):
            yield Undecided(f"{message}, on a machine that starved")
            return
        job = f"{stream.queue}:{unread[0].job}"
        yield HistoryFinding(message=message, job=job, lines=_neighbours(unread, reports))
    elif missed:
        message = f"{who} left out {len(missed)} entries, first {missed[0].name} of job {missed[0].job}"
        yield HistoryFinding(message=message, job=f"{stream.queue}:{missed[0].job}", lines=_neighbours(missed, reports))


def _missed_entries(
    evidence: Evidence, stream: _Stream, reports: Sequence[EventReported], *, until_ms: float | None
) -> list[StreamEventLine]:
    first, last = entry_number(reports[0].entry), max(entry_number(line.entry) for line in reports)
    # Only names that it reports: a driver may not pass on every kind of event.
    entries, names = {line.entry for line in reports}, {line.name for line in reports}
    # Entries shortly before the end may still be on their way to the reader.
    due = [] if until_ms is None else [row for row in stream.after(last) if row.at_ms < until_ms - TELLS_AFTER_MS]
    return [
        event
        for event in [*stream.between(first, last), *due]
        if event.entry not in entries and event.name in names and not evidence.was_lost(event.at_ms)
    ]


def _neighbours(
    missed: Sequence[StreamEventLine], reports: Sequence[EventReported]
) -> tuple[StreamEventLine | EventReported, ...]:
    """The last report before the gap, the missed entries, and the next report."""
    gap = entry_number(missed[0].entry)
    before = [line for line in reports if entry_number(line.entry) < gap]
    after = [line for line in reports if entry_number(line.entry) > gap]
    return (*before[-1:], *missed[:5], *after[:1])


def _connections(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """At the end a process has about as many connections to Redis open as before the first fault.

    And in a cluster it follows ASK as documented: after ASKING, on the same connection.

    A pool may have grown by half, or by one connection for each handle: redis-py opens another one for `addBulk` and
    for a flow while the first is in use. Handles are those of the queues, and the one that adds flows. In a cluster,
    connections are opened per node.
    """
    yield from _bounced(evidence.history)
    flows = any(call.invocation.op == "flow.add" for call in evidence.calls.values())
    handles = len(evidence.events_by_queue) + flows
    samples = [sample for sample in evidence.samples if sample.connections]
    first = min((window.began_ms for window in evidence.faults), default=float("inf"))
    # Before the first fault every handle is open and no reconnection has happened yet.
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
        # Pools grow on demand, so a small increase is not a leak.
        if now > nodes * then + max(2, then // 2, handles):
            message = f"{process} has {now} connections open, before the first fault it had {then}"
            yield HistoryFinding(message=message, lines=(before[0], samples[-1]))


def _bounced(history: History) -> Iterator[HistoryFinding]:
    """A node that imports a slot answers MOVED to a command without ASKING, so the command never runs."""
    asked: dict[tuple[str, ...], ScriptLine] = {}
    refused: defaultdict[str, list[ScriptLine]] = defaultdict(list)
    served: Counter[str] = Counter()
    for line in history.lines:
        if not isinstance(line, ScriptLine):
            continue
        call = (line.process, line.queue, line.script, line.job, line.token)
        before = asked.pop(call, None)
        if line.error.startswith("ASK "):
            asked[call] = line
        elif before and line.error.startswith("MOVED "):
            # Back to where it came from; to the same node as ASK, the migration has ended meanwhile.
            if line.error.split()[2:3] != before.error.split()[2:3]:
                refused[line.process] += [before, line]
        elif before:
            # TRYAGAIN as well: the node has seen ASKING.
            served[line.process] += 1
    for process, lines in refused.items():
        # A client that has given up after ASK may start its next attempt at the other node.
        if (times := len(lines) // 2) >= MOST_CROSSED and times > served[process]:
            message = f"{process} sent {times} commands after ASK without ASKING, and the other node refused them"
            yield HistoryFinding(message=message, lines=tuple(lines[:4]))


def _memory(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """The memory of a process does not grow by half (and 32 MiB) while its work stays the same.

    Redis may also grow by the jobs that it keeps.
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
    """Processes of the client whose memory grew, and by how much. The kit itself stores the history, and is not judged.

    The median of the last fifth is compared with that of the second fifth: in the first, caches still fill. A process
    with few samples is not judged. `kept_jobs`: how many jobs Redis may keep, of 2 KiB each.
    """
    grown = {}
    for name, series in _memory_series(history).items():
        if name == KIT or len(series) < FEWEST_SAMPLES:
            continue
        fifth = len(series) // 5
        # Medians, because single samples include garbage that was not collected yet.
        before, after = median(series[fifth : 2 * fifth]), median(series[-fifth:])
        # Redis keeps finished jobs, and that growth is wanted.
        kept = KEPT_JOB_BYTES * kept_jobs if name == REDIS else 0
        # Both a factor and an amount: small processes vary by half, and large ones by many MiB.
        if after > before * MOST_GROWTH and after - before > LEAST_GROWTH_BYTES + kept:
            grown[name] = f"{before / 2**20:.0f} MiB to {after / 2**20:.0f} MiB"
    return grown


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
