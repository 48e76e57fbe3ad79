"""Processes that run cases, each with its own Redis and oracle, which stay open from one mutant to the next."""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from tempfile import TemporaryDirectory

from conformance import interruption
from conformance.mutants.generated.case_runner import CaseRunner, CaseRunnerSetting
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunt import HuntedCase, Hunter
from conformance.mutants.generated.reach import CaseReach, case_names
from conformance.mutants.generated.recording import Recorder
from conformance.mutants.matrix import ScenarioCase, all_cases


@dataclass(frozen=True)
class Milestone:
    """A point that processes wait for until their parent reaches it, or is gone. `end`: of a pipe without data.

    Not an Event of `multiprocessing`: a process that is killed while it reads one never releases its lock.
    """

    end: Connection

    def is_reached(self) -> bool:
        """Whether the writing end is closed."""
        return self.end.poll(0)

    def wait(self) -> None:
        """Return when it is reached."""
        self.end.poll(None)


class _Worker:
    """The recorder and the hunter of one process."""

    def __init__(self, setting: CaseRunnerSetting, folder: str, ending: Milestone) -> None:
        self._stack = ExitStack()
        self.cases: Mapping[str, ScenarioCase] = case_names(all_cases())
        # The runner is opened in the worker: connections and processes cannot be sent to it.
        runner = self._stack.enter_context(CaseRunner(setting))
        self.recorder = Recorder(runner)
        self.hunter = Hunter(runner, self.cases, ending.is_reached, folder)
        # Registered last and closed first: both use the runner's drivers.
        self._stack.callback(self.recorder.close)
        self._stack.callback(self.hunter.close)

    def close(self) -> None:
        self._stack.close()


_OF_THIS_PROCESS: list[_Worker] = []


def _open(setting: CaseRunnerSetting, folder: str, all_started: Milestone, ending: Milestone) -> None:
    # Ctrl-C is for the parent, which ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A worker that ends while others start breaks the pool, which then waits forever for those it does not know yet.
    all_started.wait()
    interruption.let_through()
    logging.disable()  # broken clients log a lot
    worker = _Worker(setting, folder, ending)
    _OF_THIS_PROCESS.append(worker)
    # At the exit of the process: a ProcessPoolExecutor has no hook for the end of a worker.
    multiprocessing.util.Finalize(worker, worker.close, exitpriority=10)


def record(name: str) -> CaseReach:
    """Record one case in this process."""
    [worker] = _OF_THIS_PROCESS
    return worker.recorder.record(name, worker.cases[name])


def hunt(mutant: GeneratedMutant, names: Sequence[str]) -> tuple[list[HuntedCase], str, list[str]]:
    """Hunt one mutant in this process."""
    [worker] = _OF_THIS_PROCESS
    return worker.hunter.hunt(mutant, names)


@contextmanager
def worker_processes(setting: CaseRunnerSetting, count: int) -> Iterator[ProcessPoolExecutor]:
    """Start `count` processes; they end with the block, at the latest after their current case."""
    # `spawn`: a forked process would share connections and threads with its parent.
    context = multiprocessing.get_context("spawn")
    with (
        # Of this process: one that a signal to the whole group ends at once leaves its temporary files.
        TemporaryDirectory(prefix="bullmq-conformance-", ignore_cleanup_errors=True) as folder,
        _milestone(context) as (all_started, reach_all_started),
        _milestone(context) as (ending, reach_ending),
    ):
        with interruption.postponed(), interruption.held_from_children():  # its locks start a process, too
            pool = ProcessPoolExecutor(
                count, mp_context=context, initializer=_open, initargs=(setting, folder, all_started, ending)
            )
        try:
            # Start all of them here: a process interrupted during its start prints a traceback. Each call starts
            # another process as long as none is idle.
            with interruption.postponed(), interruption.held_from_children():
                for _ in range(count):
                    pool.submit(os.getpid)
                reach_all_started()
            yield pool
        finally:
            # If Python exits while the pool ends, the thread that stops the processes is gone: end the pool first.
            with interruption.postponed():
                # Again, in case the block failed before it: waiting workers would never end.
                reach_all_started()
                reach_ending()
                pool.shutdown(cancel_futures=True)


@contextmanager
def _milestone(context: SpawnContext) -> Iterator[tuple[Milestone, Callable[[], None]]]:
    """A milestone, and the call with which the parent reaches it."""
    reader, writer = context.Pipe(duplex=False)
    with reader, writer:
        yield Milestone(reader), writer.close
