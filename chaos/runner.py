"""Runs chaos tests: one run with its faults, healing, draining, rest and checks, or a whole suite of runs."""

from __future__ import annotations

import os
import platform
import random
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chaos.clients import ChaosProducer, ChaosWorker, ProcessorTimer
from chaos.crash_points import CrashBench, CrashResult, crash, points_of
from chaos.fault_invariants import invariants_tested_by
from chaos.faults.base import ChaosSystem
from chaos.nemesis import injected, schedule
from chaos.observers import (
    ProcessMonitor,
    QueueObserver,
    StarvationMonitor,
    final_snapshot,
    sample_connections,
    set_limits,
    wait_for_quiescence,
)
from chaos.options import ChaosOptions
from chaos.processes import CALL_DEADLINE_MS, ClientProcess, ContainerProcess
from chaos.readers import ChaosReader
from chaos.recorder import HistoryRecorder
from chaos.recovery_phase import RecoveryProgress, run_recovery_phase
from chaos.report import render_all
from chaos.results import (
    FILE,
    ChaosResult,
    ResultRow,
    ResultsFile,
    ResultsHeader,
    crash_result_row,
    identity_of,
    result_row,
)
from chaos.run_errors import RunErrors
from chaos.script_calls import ScriptCallCollector
from chaos.topologies import open_topology
from chaos.workload import LIMITED, MAIN, NARROW, NARROW_CONCURRENCY, QUEUES, RATE, SEGMENTS, ChaosWorkload
from conformance.checkers.histories.history import HistoryBounds, HistoryHeader, RunPhase
from conformance.checkers.histories.history_checks import check_history
from conformance.environment.clients import Launch
from conformance.environment.drivers import introduced
from conformance.environment.prepare import Environment
from conformance.gate.records import redacted
from conformance.observe.tables import Snapshot
from conformance.protocol.scripts import BULLMQ_VERSION

# Short, so that a lost lock shows within a run of seconds.
LOCK_MS = 2000
STALLED_INTERVAL_MS = 1000
RENEWAL_LATE_MS = 2500
"""How much later than documented a stalled job may be recovered: the timers of two workers, and a busy machine."""
STALL_MS = LOCK_MS + 2 * STALLED_INTERVAL_MS + RENEWAL_LATE_MS
WORKER_OPTIONS: Mapping[str, Any] = {
    "lockDuration": LOCK_MS,
    "stalledInterval": STALLED_INTERVAL_MS,
    "maxStalledCount": 50,
    "concurrency": 4,
    "drainDelay": 1,
    "runRetryDelay": 1000,
}
"""BullMQ's defaults are 15 to 30 times as long, in the same proportions. `maxStalledCount`: no job is given up."""
# Work must be under way before the first fault.
LEAD_MS = 600
GAP_MS = 600
"""Time between two faults: long enough to observe that work goes on."""


def run_suite(
    options: ChaosOptions, environment: Environment, announce: Callable[[ResultRow], None]
) -> list[ResultRow]:
    """Run everything; `announce` receives each result. An error that ends a run early becomes a part of its result.

    Raises a Problem if the client cannot be started at all, or if the results cannot be written.
    """
    results: list[ResultRow] = []
    header = _results_header(options, environment)
    file = ResultsFile(options.out / FILE, header) if options.out is not None else None
    try:
        for result in _all_results(options, environment):
            results.append(result)
            if file is not None:
                file.put(result)
            announce(result)
        if file is not None:
            file.finish()
    finally:
        # Also after an interruption: the reports then say that they are incomplete.
        if options.out is not None and results:
            render_all(options.out)
    return results


def _results_header(options: ChaosOptions, environment: Environment) -> ResultsHeader:
    """The versions of all participants, as they report them. Raises DriverBroken if the client cannot be started."""
    return ResultsHeader(
        started=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        command=shlex.join(redacted(options.command)),
        environment={
            "node": environment.toolchain.node.version,
            "bullmq": environment.toolchain.package.version,
            "client": introduced(options.client),
            **({"partner": introduced(options.partner)} if options.partner else {}),
            "redis": environment.redis_program.source,
            "python": platform.python_version(),
            "cpus": str(os.cpu_count()),
        },
    )


def _all_results(options: ChaosOptions, environment: Environment) -> Iterator[ResultRow]:
    before, after = options.runs_around_crash_points()
    yield from _results_of(before, environment)
    if options.crash_points:
        yield from _crash_points(options, environment)
    yield from _results_of(after, environment)


def _results_of(runs: Sequence[ChaosOptions], environment: Environment) -> Iterator[ResultRow]:
    for run_options in runs:
        started = time.monotonic()
        yield result_row(run_chaos(run_options, environment), seconds=time.monotonic() - started)


def _crash_points(options: ChaosOptions, environment: Environment) -> Iterator[ResultRow]:
    client, reproduce = options.client, options.reproduce_crash_points
    with CrashBench(client, environment) as bench:
        for segment in SEGMENTS:
            for point in points_of(segment):
                started, troubles = time.monotonic(), RunErrors()
                result = CrashResult(where=point, reached=False, judgements=())
                # A failure at one point is noted, and the other points are still run.
                with troubles.noting(str(point)):
                    result = crash(bench, point)
                who, seconds = identity_of(client, bench.version), time.monotonic() - started
                row = crash_result_row(result, who=who, seconds=seconds, reproduce=reproduce)
                yield msgspec.structs.replace(row, troubles=troubles.found)


def run_chaos(options: ChaosOptions, environment: Environment) -> ChaosResult:
    """Run all faults in one run, and judge. Raises CannotRecord."""
    troubles, ended = RunErrors(), _RunEnd()
    with closing(HistoryRecorder(options.out / "history.jsonl" if options.out is not None else None)) as recorder:
        # Around everything: errors at the end of a process or a server belong to this run, too.
        with troubles.noting("the run"):
            _carry_out(options, environment, recorder, troubles, ended)
        if not recorder.is_started:
            recorder.start(_history_header(options, recorder, prefix=""))
        history = recorder.finish()
    judgements = check_history(history, ended.snapshot)
    return ChaosResult(options, history, ended.snapshot, judgements, ended.errors, troubles.found, ended.version)


@dataclass
class _RunEnd:
    """The data in Redis at the end (None: it could not be read), and the errors that listeners received, by process.

    `version`: of the client.
    """

    snapshot: Snapshot | None = None
    version: str = ""
    errors: dict[str, list[str]] = field(default_factory=dict)


def _carry_out(
    options: ChaosOptions,
    environment: Environment,
    recorder: HistoryRecorder,
    troubles: RunErrors,
    ended: _RunEnd,
) -> None:
    """Run everything; after it returns, no line is recorded any more."""
    watch = RecoveryProgress()
    recorder.listeners.append(watch)
    with ExitStack() as stack:
        system = stack.enter_context(_running_system(options, environment, recorder))
        observer = stack.enter_context(QueueObserver(system.topology, recorder, system.prefix, QUEUES))
        stack.enter_context(StarvationMonitor(recorder))
        stack.enter_context(ProcessMonitor(recorder, system.measured_pids))
        collector = ScriptCallCollector(system.processes, recorder)
        if options.out is not None:
            stack.enter_context(collector)
        ended.version = system.producers[0].process.connection.ready.client.version
        _disturb(options, system, watch, troubles)
        with troubles.noting("the end of the run"):
            ended.snapshot = _settle(options, system, observer, watch, troubles)
        # Stop before collecting: two collectors at once would record a call twice.
        collector.stop()
        collector.collect(everything=True)
        ended.errors = {worker.process.name: worker.errors for worker in system.workers}


@contextmanager
def _running_system(
    options: ChaosOptions, environment: Environment, recorder: HistoryRecorder
) -> Iterator[ChaosSystem]:
    """Redis, and all processes with their handles open, for the duration of the block."""
    with ExitStack() as stack:
        topology = stack.enter_context(open_topology(options.topology, environment.redis_program, options.persistence))
        prefix = topology.fresh_prefix()
        recorder.start(_history_header(options, recorder, prefix))
        timer = stack.enter_context(ProcessorTimer())

        def new_process(name: str, client: Launch, image: str = "") -> ClientProcess:
            tap = stack.enter_context(topology.new_tap(environment.scripts))
            process = (
                ContainerProcess(name, client, tap, mode=options.topology, seed=options.seed, image=image)
                if image
                else ClientProcess(name, client, tap, mode=options.topology, seed=options.seed)
            )
            stack.callback(process.close)
            return process

        producers = [
            ChaosProducer(
                new_process(f"producer-{number}", options.client),
                # A seed of its own, so that producers do not make the same calls.
                ChaosWorkload(options.seed * 1000 + number, options.workload_mix, label=f"p{number}-"),
                recorder,
                prefix,
                options.pause_ms / 1000,
                reader=ChaosReader(recorder, prefix),
            )
            for number in range(1, options.producers + 1)
        ]
        workers = [
            ChaosWorker(
                new_process(f"worker-{number}", client, options.image),
                recorder,
                timer,
                prefix,
                dict(WORKER_OPTIONS),
                reader=ChaosReader(recorder, prefix),
            )
            for number, client in enumerate(options.worker_clients, 1)
        ]
        system = ChaosSystem(topology, producers, workers, recorder, prefix, STALL_MS, random.Random(options.seed))
        # Before the processes are closed: a fault that still waits would delay the end.
        stack.callback(system.aborted.set)
        _start_all([producer.process for producer in producers])
        set_limits(topology, prefix)
        # Workers last, so that no job starts before the limits are set.
        _start_all([worker.process for worker in workers])
        yield system


def _start_all(processes: Sequence[ClientProcess]) -> None:
    """Start processes in parallel, because a start is mostly waiting."""
    with ThreadPoolExecutor(len(processes)) as pool:
        for started in [pool.submit(process.start) for process in processes]:
            # `result` raises what the start raised.
            started.result()


def _history_header(options: ChaosOptions, recorder: HistoryRecorder, prefix: str) -> HistoryHeader:
    return HistoryHeader(
        client=options.client.name,
        bullmq=options.oracle or BULLMQ_VERSION,
        topology=options.topology,
        faults=[fault.name for fault in options.faults],
        seed=options.seed,
        prefix=prefix,
        unix_offset_ms=recorder.unix_offset_ms,
        bounds=HistoryBounds(
            lock_ms=LOCK_MS,
            limits={LIMITED: RATE},
            concurrency={NARROW: NARROW_CONCURRENCY},
            worker_concurrency=WORKER_OPTIONS["concurrency"],
        ),
        evidence="full",
        reproduce=options.reproduce,
    )


def _disturb(options: ChaosOptions, system: ChaosSystem, watch: RecoveryProgress, troubles: RunErrors) -> None:
    """Run the workload and the nemesis: one fault after the other, in the order of the seed."""
    system.recorder.put(RunPhase(at_ms=system.recorder.now_ms(), name="workload"))
    started = system.recorder.now_ms()
    for producer in system.producers:
        producer.start()
    system.pause(LEAD_MS)
    sample_connections(system.recorder, system.processes)
    # The last fault must end before the duration is over.
    ends_ms = started + options.duration_ms - GAP_MS
    faults = options.faults
    for chosen in schedule(faults, system, rounds=options.rounds, until_ms=ends_ms, at_once=options.at_once):
        with injected(chosen, system, troubles):
            system.pause(max(fault.hold_ms for fault in chosen) if options.hold_ms is None else options.hold_ms)
        # Stops here if the history cannot be written: all later faults would be lost.
        system.recorder.insist()
        system.pause(GAP_MS)
    while (left := started + options.duration_ms - system.recorder.now_ms()) > 0:
        system.pause(left)
    with troubles.noting("the calm"):
        run_recovery_phase(system, watch, invariants_tested_by(options.faults))
    for producer in system.producers:
        producer.stop()


def _settle(
    options: ChaosOptions, system: ChaosSystem, observer: QueueObserver, watch: RecoveryProgress, troubles: RunErrors
) -> Snapshot:
    """Heal, drain, wait for rest, and read everything."""
    put, now = system.recorder.put, system.recorder.now_ms
    # A frozen or dead process would keep its jobs, and the queues would never come to rest.
    for process in system.processes:
        with troubles.noting(f"the last start of {process.name}"):
            process.thaw()
            process.restart_if_dead()
    # Stop producers first: rest is proved by empty containers, which a late call would fill again.
    for producer in system.producers:
        producer.join(CALL_DEADLINE_MS / 1000)
    put(RunPhase(at_ms=now(), name="drain"))
    rest = wait_for_quiescence(
        system.topology,
        system.prefix,
        QUEUES,
        lambda: sum(len(worker.running) for worker in system.workers),
        deadline_s=options.drain_deadline_s,
    )
    put(RunPhase(at_ms=now(), name="quiescent" if rest.reached else "stuck", seen=rest.seen))
    observer.catch_up()
    # Readers get time to report the last entry, so that a late one is not counted as a loss.
    watch.wait_for_readers(observer.last_entry(MAIN))
    sample_connections(system.recorder, system.processes)
    return final_snapshot(system.topology, system.prefix)
