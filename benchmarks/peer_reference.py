"""Tasks whose target only applies to the reference client; they run inside its peer process (peer.py)."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from conformance.reference_impl.connection.resp import IS_ACCELERATED, packed, reply_reader
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.reference_impl.workers.worker import Worker

Json = dict[str, Any]

BATCH: Final = 1000


async def overhead(args: Json) -> list[list[float]]:
    """Alternate between `Queue.add` and the same EVALSHA sent by hand; returns pairs of seconds."""
    queue = Queue(args["queue"], _options(args))
    client: Any = Redis(host=args["host"], port=args["port"])
    try:
        await queue.add("job", {})
        command = _same_command(queue)
        await client.execute_command(*command)
        return [[await _time_add(queue), await _time_by_hand(client, command)] for _ in range(args["jobs"])]
    finally:
        await queue.close()
        await client.aclose()


async def is_accelerated(_args: Json) -> bool:
    """Whether this process has hiredis."""
    return IS_ACCELERATED


async def by_hand(args: Json) -> float:
    """Add jobs with only a socket and the prepared commands of `addBulk`; returns seconds."""
    queue = Queue(args["queue"], _options(args))
    try:
        await queue.add("job", {})
        command = packed(_same_command(queue))
    finally:
        await queue.close()
    return await asyncio.to_thread(_send_all, command, args)


def _send_all(command: bytes, args: Json) -> float:
    """Send the command as often as there are jobs, in the portions of `addBulk`, and wait for all replies."""
    replies = reply_reader(ResponseError)
    with socket.create_connection((args["host"], args["port"])) as connection:
        started = time.perf_counter()
        for start in range(0, args["jobs"], BATCH):
            portion = min(BATCH, args["jobs"] - start)
            connection.sendall(command * portion)
            while portion:
                replies.feed(connection.recv(2**16))
                while portion and (reply := replies.gets()) is not False:
                    if isinstance(reply, ResponseError):
                        raise reply
                    portion -= 1
        return time.perf_counter() - started


async def stalled(args: Json) -> list[float]:
    """Time the stalled check while all jobs of the queue are active and locked; returns seconds per check.

    The first check only marks the active jobs as suspects and is not counted.
    """
    options = {**_options(args), "stalledInterval": 1, "lockDuration": 600_000}
    worker = Worker(args["queue"], None, options)
    try:
        for _ in range(args["jobs"]):
            if await worker.getNextJob("token", {"block": False}) is None:
                raise RuntimeError("the queue has fewer jobs than it should have")
        await _check_for_real(worker)
        return [await _check_for_real(worker) for _ in range(args["checks"])]
    finally:
        await worker.close()


async def _check_for_real(worker: Worker) -> float:
    """Check once; the key that limits checks to one per interval is removed first."""
    await worker.connection.command("DEL", worker.toKey("stalled-check"))
    started = time.perf_counter()
    recovered = await worker.checkStalled()
    seconds = time.perf_counter() - started
    if recovered:
        raise RuntimeError(f"{len(recovered)} jobs with live locks were recovered")
    return seconds


async def _time_add(queue: Queue) -> float:
    started = time.perf_counter()
    await queue.add("job", {})
    return time.perf_counter() - started


async def _time_by_hand(client: Any, command: tuple[Any, ...]) -> float:
    started = time.perf_counter()
    await client.execute_command(*command)
    return time.perf_counter() - started


def _same_command(queue: Queue) -> tuple[Any, ...]:
    """Return the prepared command of `Queue.add`."""
    call = queue.scripts.add_call(Job(queue, "job", {}).to_new_job())
    return ("EVALSHA", official_scripts()[call.name].sha1, len(call.keys), *call.keys, *call.arguments)


def _options(args: Json) -> Json:
    return {"connection": {"host": args["host"], "port": args["port"]}, "prefix": args["prefix"]}
