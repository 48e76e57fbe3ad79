"""Run tasks at the same time: in threads, in processes of this machine, or elsewhere. No Spark.

A task is a function and an argument that both can be pickled. Its result must not grow with the number of jobs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from conformance.problems import EnvironmentProblem
from reports.lazy_pandas import import_pandas_lazily
from reports.throttle import install_throttle

Task = TypeVar("Task")
Result = TypeVar("Result")


NICENESS = 5
"""Of processes that go last: a third of the time of a usual one, so that they end in time on a busy machine too."""

_ATTEMPT: ContextVar[int] = ContextVar("attempt", default=0)


def attempt_number() -> int:
    """Which attempt at its task the caller is: 0, unless a cluster tries a task again."""
    return _ATTEMPT.get()


@contextmanager
def attempt(number: int) -> Iterator[None]:
    """Number the attempt in this block."""
    token = _ATTEMPT.set(number)
    try:
        yield
    finally:
        _ATTEMPT.reset(token)


class Distribution(Protocol):
    """A place for tasks."""

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results as they come, in no order. Raises the first Problem of a task."""
        ...


class InThreads:
    """Runs tasks in threads of this process: for few rows, because they share one interpreter.

    The threads are daemons, so an interrupted command does not wait for them.
    """

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """As `Distribution.run`."""
        waiting, ended = deque(tasks), SimpleQueue[Future[Result]]()
        for _ in range(min(processors(), len(tasks))):
            threading.Thread(target=_work_off, args=(work, waiting, ended), name="task", daemon=True).start()
        try:
            for _ in tasks:
                yield ended.get().result()
        finally:
            waiting.clear()


def _work_off(work: Callable[[Task], Result], waiting: deque[Task], ended: SimpleQueue[Future[Result]]) -> None:
    while waiting:
        try:
            task = waiting.popleft()
        except IndexError:  # another thread was faster
            return
        done: Future[Result] = Future()
        try:
            done.set_result(work(task))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            done.set_exception(error)
        ended.put(done)


@dataclass(frozen=True)
class InProcesses:
    """Runs tasks in one process per processor. They are started for each call, or for a block (`kept_processes`).

    `last`: other programs of this machine go first. `throttled`: there is only one process, even for one task, which
    works for a share of the time (`reports.throttle`).
    """

    last: bool = False
    throttled: bool = False

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """As `Distribution.run`. Raises EnvironmentProblem if a process dies."""
        if len(tasks) < 2 and not self.throttled:
            yield from map(work, tasks)
            return
        with _pool(self) as pool:
            waiting = [pool.submit(work, task) for task in tasks]
            try:
                for done in as_completed(waiting):
                    yield done.result()
            except BrokenProcessPool as error:
                if _KEPT:
                    _KEPT[-1].pop(self, None)
                raise EnvironmentProblem(
                    "a process that works on a part of the store has died", hint="often it had too little memory"
                ) from error
            finally:
                for future in waiting:
                    future.cancel()


_KEPT: list[dict[InProcesses, ProcessPoolExecutor]] = []
"""The processes of each open block of `kept_processes`."""


@contextmanager
def kept_processes() -> Iterator[None]:
    """All calls of `InProcesses` in this block share their processes: the start of each costs half a second.

    They end with the block, and unfinished tasks with them.
    """
    _KEPT.append({})
    try:
        yield
    finally:
        end_processes()
        for pool in _KEPT.pop().values():
            pool.shutdown()


@contextmanager
def _pool(kind: InProcesses) -> Iterator[ProcessPoolExecutor]:
    # A fork would copy locks that other threads hold.
    start = partial(
        ProcessPoolExecutor,
        1 if kind.throttled else processors(),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_process,
        initargs=(kind,),
    )
    if not _KEPT:
        with start() as pool:
            yield pool
        return
    yield _KEPT[-1].get(kind) or _KEPT[-1].setdefault(kind, start())


def end_processes() -> None:
    """End the processes of all tasks at once: their results are no longer wanted."""
    for process in multiprocessing.active_children():
        process.terminate()


def processors() -> int:
    """The number of tasks that run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_process(kind: InProcesses) -> None:
    """Leave interruptions to the parent, and end with it."""
    if kind.last:
        _step_back()
        install_throttle(on=kind.throttled)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent.sentinel,), name="end with the parent", daemon=True).start()
    import_pandas_lazily()


def _end_with(sentinel: Any) -> None:
    wait_for([sentinel])
    os._exit(1)


def _step_back() -> None:
    """Give this process a low priority, also against programs of other sessions."""
    os.nice(NICENESS)
    with suppress(OSError):  # no Linux, or a kernel that does not group processes by session
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(NICENESS), "ascii")
