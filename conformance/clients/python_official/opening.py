"""Making the client's objects: a queue, a worker, an event reader or a flow producer, connected and ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bullmq import FlowProducer, Queue, QueueEvents, Worker
from errors import text_of
from handles import Handle
from kit import OpError, deadline_ms
from processors import processor_for
from redis.asyncio.cluster import ClusterNode, RedisCluster

Json = dict[str, Any]
Send = Callable[[str, Json], None]

CONNECT_BY = 0.8
"""The part of a call's deadline after which there is no connection: the client tries again for minutes."""


class ForwardingQueueEvents(QueueEvents):  # type: ignore[misc]  # the client has no types
    """QueueEvents that tells the kit of every entry it delivers.

    The client's emitter has listeners by name only, and names are not known ahead; an entry is emitted under its name
    first, then again as `name:jobId`.
    """

    send: Send
    last_sent: str | None = None

    def emit(self, event_name: str, *args: Any, **kwargs: Any) -> None:
        """See `EventEmitter.emit`."""
        if event_name != "error" and args[-1] != self.last_sent:
            self.last_sent = args[-1]
            fields = args[0] if len(args) > 1 else {}
            self.send("queue-event", {"name": event_name, "event_id": args[-1], "fields": fields})
        super().emit(event_name, *args, **kwargs)


async def open_handle(name: str, args: Json, send: Send) -> Handle:
    """Make the object of a role and wait until it is connected. Raises OpError."""
    opener = OPENERS.get(args["role"])
    if opener is None:
        raise OpError("invalid-argument", f"no such role: {args['role']}")
    handle = Handle(name=name, role=args["role"], object=None, send=send)
    options = {**args.get("options", {}), "prefix": args["prefix"], "connection": _connection(args["redis"])}
    seconds = CONNECT_BY * deadline_ms() / 1000
    async with asyncio.timeout(seconds) as limit:
        try:
            await opener(handle, args, options)
        except BaseException:
            if handle.object is not None:
                handle.tasks.append(asyncio.ensure_future(handle.close(force=True)))
            if limit.expired():
                message = f"no connection to Redis within {seconds:.1f} s"
                raise OpError("connection-lost", message, definite=False, status="info") from None
            raise
    return handle


def _connection(redis: Json) -> Json | RedisCluster:
    """Return connection options of the client, or a cluster client: it takes one but cannot make it."""
    nodes = [_host_and_port(node) for node in redis["nodes"]]
    credentials: Json = {key: redis[key] for key in ("username", "password") if redis.get(key)}
    if redis.get("tls"):
        credentials["ssl"] = True
    if redis["mode"] == "cluster":
        # What the client sets for its own connections: it reads every reply as text.
        start = [ClusterNode(host, port) for host, port in nodes]
        return RedisCluster(startup_nodes=start, decode_responses=True, **credentials)
    host, port = nodes[0]
    return {"host": host, "port": port, "db": redis.get("db", 0), **credentials}


def _host_and_port(node: str) -> tuple[str, int]:
    host, _, port = node.rpartition(":")
    return host, int(port)


async def _open_queue(handle: Handle, args: Json, options: Json) -> None:
    handle.object = Queue(args["queue"], options)
    await handle.object.backend.waitUntilReady()


async def _open_flow(handle: Handle, _args: Json, options: Json) -> None:
    handle.object = FlowProducer(opts=options)
    await handle.object.backend.waitUntilReady()


async def _open_worker(handle: Handle, args: Json, options: Json) -> None:
    process = processor_for(args.get("processor") or "manual", handle, args.get("processor_args") or {})
    handle.object = Worker(args["queue"], process, options)
    handle.report_errors()
    handle.report_worker_events()
    await handle.object.backend.waitUntilReady()


async def _open_events(handle: Handle, args: Json, options: Json) -> None:
    autorun = options.pop("autorun", True)
    events = ForwardingQueueEvents(args["queue"], {**options, "autorun": False})
    events.send = handle.send
    handle.object = events
    handle.report_errors()
    if "lastEventId" not in options:
        # `$` would mean "from the moment that XREAD arrives", which is some time after this call is answered.
        last = await events.client.xrevrange(events.keys["events"], count=1)
        events.opts["lastEventId"] = last[0][0] if last else "0-0"
    if autorun:
        handle.tasks.append(asyncio.ensure_future(_run(handle)))


async def _run(handle: Handle) -> None:
    """Read events until the object is closed; an error that ends the loop is told like the client's autorun does."""
    try:
        await handle.object.run()
    except Exception as error:  # noqa: BLE001 - whatever ends the loop is what the listener is told
        handle.send("error", {"message": text_of(error)})


OPENERS: dict[str, Callable[[Handle, Json, Json], Awaitable[None]]] = {
    "queue": _open_queue,
    "worker": _open_worker,
    "events": _open_events,
    "flow": _open_flow,
}
