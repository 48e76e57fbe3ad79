"""Processes that play cases, each with a Redis and an oracle of its own, kept warm from one mutant to the next."""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event

from conformance import interruption
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunting import HuntedCase, Hunter
from conformance.mutants.generated.player import Player, PlayerSetting
from conformance.mutants.generated.reach import CaseReach, case_names
from conformance.mutants.generated.recording import Recorder
from conformance.mutants.matrix import ScenarioCase, all_cases

_ALL_BEGIN_S = 60
"""How long a process waits for the others; only one whose parent is gone waits for so long."""


class _Worker:
    """What one process has."""

    def __init__(self, setting: PlayerSetting, ending: Event) -> None:
        self._stack = ExitStack()
        self.cases: Mapping[str, ScenarioCase] = case_names(all_cases())
        player = self._stack.enter_context(Player(setting))
        self.recorder = Recorder(player)
        self.hunter = Hunter(player, self.cases, ending.is_set)
        self._stack.callback(self.recorder.close)
        self._stack.callback(self.hunter.close)

    def close(self) -> None:
        self._stack.close()


_OF_THIS_PROCESS: list[_Worker] = []


def _open(setting: PlayerSetting, all_begun: Event, ending: Event) -> None:
    # Ctrl-C is for the parent, which ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One that is ended while others begin breaks the pool, and that waits for ever for those that it does not know yet.
    all_begun.wait(_ALL_BEGIN_S)
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
    with interruption.postponed(), interruption.held_from_children():  # the first of them starts a process, too
        all_begun, ending = context.Event(), context.Event()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_open, initargs=(setting, all_begun, ending))
    try:
        # All of them begin here: one that is half begun shows a traceback where it is broken off. A call starts another
        # process as long as none is idle.
        with interruption.postponed(), interruption.held_from_children():
            for _ in range(count):
                pool.submit(os.getpid)
            all_begun.set()
        yield pool
    finally:
        all_begun.set()
        ending.set()
        pool.shutdown(cancel_futures=True)
