"""Processes that play cases, each with a Redis and an oracle of its own, kept warm from one mutant to the next."""

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

from conformance import interruption
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunting import HuntedCase, Hunter
from conformance.mutants.generated.player import Player, PlayerSetting
from conformance.mutants.generated.reach import CaseReach, case_names
from conformance.mutants.generated.recording import Recorder
from conformance.mutants.matrix import ScenarioCase, all_cases


@dataclass(frozen=True)
class Milestone:
    """What processes wait for until their parent reaches it, or is gone. `end`: of a pipe in which nothing is written.

    Not an Event of `multiprocessing`: a process that is killed while it looks at one takes its lock along.
    """

    end: Connection

    def is_reached(self) -> bool:
        """Whether there is nobody any more who could write."""
        return self.end.poll(0)

    def wait(self) -> None:
        """Return when it is reached."""
        self.end.poll(None)


class _Worker:
    """What one process has."""

    def __init__(self, setting: PlayerSetting, ending: Milestone) -> None:
        self._stack = ExitStack()
        self.cases: Mapping[str, ScenarioCase] = case_names(all_cases())
        player = self._stack.enter_context(Player(setting))
        self.recorder = Recorder(player)
        self.hunter = Hunter(player, self.cases, ending.is_reached)
        self._stack.callback(self.recorder.close)
        self._stack.callback(self.hunter.close)

    def close(self) -> None:
        self._stack.close()


_OF_THIS_PROCESS: list[_Worker] = []


def _open(setting: PlayerSetting, all_begun: Milestone, ending: Milestone) -> None:
    # Ctrl-C is for the parent, which ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One that is ended while others begin breaks the pool, and that waits for ever for those that it does not know yet.
    all_begun.wait()
    interruption.let_through()
    logging.disable()  # what broken clients complain about
    worker = _Worker(setting, ending)
    _OF_THIS_PROCESS.append(worker)
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
def worker_processes(setting: PlayerSetting, count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes; they end with the block, at the latest after the case that each is at."""
    context = multiprocessing.get_context("spawn")
    with _milestone(context) as (all_begun, tell_all_begun), _milestone(context) as (ending, tell_ending):
        with interruption.postponed(), interruption.held_from_children():  # its locks start a process, too
            pool = ProcessPoolExecutor(
                count, mp_context=context, initializer=_open, initargs=(setting, all_begun, ending)
            )
        try:
            # All of them begin here: one that is half begun shows a traceback where it is broken off. A call starts
            # another process as long as none is idle.
            with interruption.postponed(), interruption.held_from_children():
                for _ in range(count):
                    pool.submit(os.getpid)
                tell_all_begun()
            yield pool
        finally:
            # Python, where it ends while the pool does, takes away the thread that tells the processes to.
            with interruption.postponed():
                tell_all_begun()
                tell_ending()
                pool.shutdown(cancel_futures=True)


@contextmanager
def _milestone(context: SpawnContext) -> Iterator[tuple[Milestone, Callable[[], None]]]:
    """A milestone, and how the parent says that it is reached."""
    reader, writer = context.Pipe(duplex=False)
    with reader, writer:
        yield Milestone(reader), writer.close
