"""A Python client as a peer of the benchmarks (sessions.py): a JSON request per line in, a JSON answer per line out.

    python peer.py reference|official [--uvloop] [--without-hiredis]

Both libraries have the same names, so one program drives both. The official client runs in a separate environment
without the kit. Times are in seconds and measured here, so that the start of Python does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, cast

Json = dict[str, Any]

BATCH: Final = 1000
PAUSE_S: Final = 0.02
LIBRARIES: Final = {
    "reference": ("conformance.reference_impl.queue", "conformance.reference_impl.workers.worker"),
    "official": ("bullmq", "bullmq"),
}


class Peer:
    """The tasks, run with one library."""

    def __init__(self, library: str) -> None:
        queue_module, worker_module = LIBRARIES[library]
        self._queue: Any = importlib.import_module(queue_module).Queue
        self._worker: Any = importlib.import_module(worker_module).Worker
        self.tasks: dict[str, Callable[[Json], Coroutine[Any, Any, Any]]] = {
            "add": self.add,
            "addBulk": self.add_bulk,
            "pickup": self.pickup,
            "work": self.work,
        }
        if library == "reference":
            from benchmarks.peer_reference import (  # noqa: PLC0415 - needs the kit
                by_hand,
                is_accelerated,
                overhead,
                stalled,
            )

            self.tasks |= {
                "byHand": by_hand,
                "isAccelerated": is_accelerated,
                "overhead": overhead,
                "stalled": stalled,
            }

    async def add_bulk(self, args: Json) -> float:
        """Add jobs in batches of 1000; returns the time it took."""
        async with self._open_queue(args) as queue:
            started = time.perf_counter()
            for added in range(0, args["jobs"], BATCH):
                count = min(BATCH, args["jobs"] - added)
                await queue.addBulk([{"name": "job", "data": {}} for _ in range(count)])
            return time.perf_counter() - started

    async def add(self, args: Json) -> float:
        """Add jobs one after the other; returns the time it took."""
        async with self._open_queue(args) as queue:
            started = time.perf_counter()
            for _ in range(args["jobs"]):
                await queue.add("job", {})
            return time.perf_counter() - started

    async def work(self, args: Json) -> float:
        """Process the waiting jobs, with `result` as their results; returns the time until the last `completed`."""
        left = args["jobs"]
        done = asyncio.Event()

        def count_down(*_: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async def answer(*_: Any) -> Any:
            return args.get("result")

        async with self._open_worker(args, answer) as worker:
            worker.on("completed", count_down)
            started = time.perf_counter()
            running = asyncio.create_task(worker.run())
            await done.wait()
            seconds = time.perf_counter() - started
        await running
        return seconds

    async def pickup(self, args: Json) -> list[float]:
        """Add single jobs while the worker waits for one; returns the times from the call of add to the processor.

        The pause before each job lets the worker finish the last one and wait again; not every library has an event
        for that.
        """
        picked: asyncio.Queue[float] = asyncio.Queue()

        async def note_time(*_: Any) -> None:
            picked.put_nowait(time.perf_counter())

        times = []
        async with self._open_queue(args) as queue, self._open_worker(args, note_time) as worker:
            running = asyncio.create_task(worker.run())
            for _ in range(args["jobs"]):
                await asyncio.sleep(PAUSE_S)
                started = time.perf_counter()
                await queue.add("job", {})
                times.append(await picked.get() - started)
        await running
        return times

    @contextlib.asynccontextmanager
    async def _open_queue(self, args: Json) -> AsyncIterator[Any]:
        queue = self._queue(args["queue"], _options(args))
        try:
            yield queue
        finally:
            await queue.close()

    @contextlib.asynccontextmanager
    async def _open_worker(self, args: Json, processor: Callable[..., Awaitable[Any]]) -> AsyncIterator[Any]:
        options = {
            **_options(args),
            "concurrency": args.get("concurrency", 1),
            "maxStalledCount": args.get("maxStalledCount", 1),
            "autorun": False,
        }
        worker = self._worker(args["queue"], processor, options)
        try:
            yield worker
        finally:
            await worker.close()


def _options(args: Json) -> Json:
    return {"connection": {"host": args["host"], "port": args["port"]}, "prefix": args["prefix"]}


def _answer(peer: Peer, runner: asyncio.Runner, line: str) -> Json:
    request = json.loads(line)
    try:
        return {"value": runner.run(peer.tasks[request["task"]](request["args"]))}
    except Exception:  # noqa: BLE001 - the parent process prints it
        return {"error": traceback.format_exc()}


def _loop_factory(*, fast: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    return importlib.import_module("uvloop").new_event_loop if fast else None


def main() -> None:
    """Answer requests until stdin ends."""
    if "--without-hiredis" in sys.argv:
        # As if it were not installed: importing it raises ImportError.
        sys.modules["hiredis"] = cast("Any", None)
    peer = Peer(sys.argv[1])
    answers = sys.stdout
    sys.stdout = sys.stderr
    with asyncio.Runner(loop_factory=_loop_factory(fast="--uvloop" in sys.argv)) as runner:
        for line in sys.stdin:
            print(json.dumps(_answer(peer, runner, line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
