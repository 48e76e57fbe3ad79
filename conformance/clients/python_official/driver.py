"""The official Python client (`bullmq` on PyPI) behind the driver protocol.

Runs in a separate environment with the client and nothing of the kit; `serve.py` is loaded by its path. Every operation
is one call of the client. Operations that the client does not have are not declared. The driver passes options on
unchanged and returns values as the client's user would see them, so that defects stay visible.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from importlib import metadata
from typing import Any
from urllib.parse import quote

import bullmq
from bullmq import FlowProducer, Worker
from handles import OfficialHandle, OfficialHandles, processor_for, resolve
from job_ops import JOB_OPS, WORKER_OPS, log
from kit import DeadlineServer, OpError, Unsupported, deadline_ms, reported_to_the_kit, text_of
from queue_ops import FLOW_OPS, QUEUE_OPS
from redis.asyncio.cluster import ClusterNode, RedisCluster
from versions import TARGETS, VERSION, make_queue, wait_until_ready

Json = dict[str, Any]
Handler = Callable[[str | None, Json], Coroutine[Any, Any, Json | None]]

PACKAGES = ("redis", "msgpack", "croniter")
"""Packages that the client's behaviour depends on: Redis protocol, packed options, cron patterns."""


def _versions() -> dict[str, str]:
    """Versions of the installed packages; older versions of the client need fewer."""
    installed = {
        str(distribution.metadata["Name"]).lower(): distribution.version for distribution in metadata.distributions()
    }
    return {name: installed[name] for name in PACKAGES if name in installed}


CAPABILITIES = ["manual-worker", "managed-worker", "cluster", "url"]

ANSWER_BY = 0.9
"""After this part of its deadline a call is undecided; the rest is for the answer's way to the kit."""

Send = Callable[[str, Json], None]

QueueEvents: Any = getattr(bullmq, "QueueEvents", object)

CONNECT_BY = 0.8
"""After this part of its deadline a call has no connection. The client itself retries for minutes."""


class OfficialDriver:
    """The open handles, and the operations on them."""

    def __init__(self) -> None:
        self.handles = OfficialHandles()
        self.server = DeadlineServer(
            client={
                "name": "bullmq",
                "language": "python",
                "version": VERSION,
                "targets": TARGETS.get(VERSION, "unknown"),
                "packages": _versions(),
            },
            capabilities=CAPABILITIES,
            ops={name: _guarded(name, handler) for name, handler in self._operations().items()},
        )

    def _operations(self) -> dict[str, Handler]:
        return {
            "open": self._open,
            "close": self._close,
            "reset": self._reset,
            "resolve": self._resolve,
            "job.log": self._on_handle(log, "queue", "worker"),
            **{name: self._on_object(run, "queue") for name, run in QUEUE_OPS.items()},
            **{name: self._on_object(run, "flow") for name, run in FLOW_OPS.items()},
            **{name: self._on_job(run) for name, run in JOB_OPS.items()},
            **{name: self._on_handle(run, "worker") for name, run in WORKER_OPS.items()},
        }

    async def _open(self, name: str | None, args: Json) -> None:
        free = self.handles.check_free(name)
        handle = OfficialHandle(free, args["role"], None, lambda event, values: self.server.emit(free, event, values))
        # Before it is connected, so that it can be closed meanwhile.
        self.handles.add(handle)
        try:
            await connect(handle, args)
        except BaseException:
            self.handles.forget(handle)
            raise

    async def _close(self, name: str | None, args: Json) -> None:
        await self.handles.close(name, force=args.get("force", False))

    async def _reset(self, _name: str | None, _args: Json) -> None:
        await self.handles.abandon_all()

    async def _resolve(self, name: str | None, args: Json) -> None:
        resolve(self.handles.named(name, "worker"), args)

    def _on_handle(self, run: Callable[[OfficialHandle, Json], Awaitable[Json | None]], *roles: str) -> Handler:
        async def call(name: str | None, args: Json) -> Json | None:
            return await run(self.handles.named(name, *roles), args)

        return call

    def _on_object(self, run: Callable[[Any, Json], Awaitable[Json | None]], role: str) -> Handler:
        return self._on_handle(lambda handle, args: run(handle.object, args), role)

    def _on_job(self, run: Callable[[Any, Json], Awaitable[Json | None]]) -> Handler:
        async def call(handle: OfficialHandle, args: Json) -> Json | None:
            return await run(await handle.find_job(args["job"]), args)

        return self._on_handle(call, "queue", "worker")


def _guarded(op: str, handler: Handler) -> Handler:
    async def call(name: str | None, args: Json) -> Json | None:
        with reported_to_the_kit(op):
            return await _in_time(op, handler(name, args))

    return call


async def _in_time(op: str, operation: Coroutine[Any, Any, Json | None]) -> Json | None:
    """Wait for the client, but not longer than the kit, which kills a driver that does not answer in time.

    A longer operation continues in the background, as for a user who stops waiting. Raises OpError.
    """
    limit_ms = ANSWER_BY * deadline_ms()
    task = asyncio.ensure_future(operation)
    # Not `wait_for`, which cancels the operation: without the kit it would not be cancelled either.
    done, _pending = await asyncio.wait({task}, timeout=limit_ms / 1000)
    if not done:
        # Otherwise asyncio reports an exception that nothing retrieved, without naming the call.
        task.add_done_callback(_log_late_end)
        raise OpError("timeout", f"{op} did not end within {limit_ms:.0f} ms: no answer", definite=False, status="info")
    return task.result()


def _log_late_end(task: asyncio.Task[Json | None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        print(f"ended after its deadline with {task.exception()!r}", file=sys.stderr)


class ForwardingQueueEvents(QueueEvents):  # type: ignore[misc]  # the client has no types, and older versions not even this
    """QueueEvents that sends every entry that it delivers to the kit.

    The client's emitter only has listeners by name, and the names are not known in advance. An entry is emitted under
    its name first, then again as `name:jobId`.
    """

    send: Send
    last_sent: str | None = None

    def emit(self, event_name: str, *args: Any, **kwargs: Any) -> None:
        """See `EventEmitter.emit`."""
        # The client emits each entry twice (see above), so the stream id has to be compared.
        if event_name != "error" and args[-1] != self.last_sent:
            self.last_sent = args[-1]
            fields = args[0] if len(args) > 1 else {}
            self.send("queue-event", {"name": event_name, "event_id": args[-1], "fields": fields})
        super().emit(event_name, *args, **kwargs)


async def connect(handle: OfficialHandle, args: Json) -> None:
    """Make the object of a handle and wait until it is connected. Raises OpError."""
    opener = OPENERS.get(args["role"])
    if opener is None:
        raise OpError("invalid-argument", f"no such role: {args['role']}")
    options = {**args.get("options", {}), "prefix": args["prefix"], "connection": _connection(args["redis"])}
    # Earlier than `ANSWER_BY`, so that the answer says "no connection" instead of "no answer".
    seconds = CONNECT_BY * deadline_ms() / 1000
    async with asyncio.timeout(seconds) as limit:
        try:
            await opener(handle, args, options)
        except BaseException:
            if handle.object is not None:
                # Not awaited: closing may hang on the same connection that just failed to open.
                handle.tasks.append(asyncio.ensure_future(handle.close(force=True)))
            if limit.expired():
                message = f"no connection to Redis within {seconds:.1f} s"
                raise OpError("connection-lost", message, definite=False, status="info") from None
            raise


def _connection(redis: Json) -> Json | str | RedisCluster:
    """Return connection options or a URL of the client, or a cluster client, which it accepts but cannot make."""
    nodes = [_host_and_port(node) for node in redis["nodes"]]
    credentials: Json = {key: redis[key] for key in ("username", "password") if redis.get(key)}
    if redis.get("tls"):
        credentials["ssl"] = True
    if redis["mode"] == "cluster":
        # The client sets this for its own connections, because it reads every reply as text.
        start = [ClusterNode(host, port) for host, port in nodes]
        return RedisCluster(startup_nodes=start, decode_responses=True, **credentials)
    host, port = nodes[0]
    if redis.get("form") == "url":
        login = f"{quote(redis['username'] or '')}:{quote(redis['password'])}@" if redis.get("password") else ""
        return f"redis://{login}{redis['nodes'][0]}/{redis.get('db', 0)}"
    return {"host": host, "port": port, "db": redis.get("db", 0), **credentials}


def _host_and_port(node: str) -> tuple[str, int]:
    host, _, port = node.rpartition(":")
    return host, int(port)


async def _open_queue(handle: OfficialHandle, args: Json, options: Json) -> None:
    handle.object = make_queue(args["queue"], options)
    await wait_until_ready(handle.object)


async def _open_flow(handle: OfficialHandle, _args: Json, options: Json) -> None:
    handle.object = FlowProducer(options["connection"], options)
    await wait_until_ready(handle.object)


async def _open_worker(handle: OfficialHandle, args: Json, options: Json) -> None:
    process = processor_for(args.get("processor") or "manual", handle, args.get("processor_args") or {})
    # Older versions also run jobs without a processor.
    handle.object = Worker(args["queue"], process, options if process else {**options, "autorun": False})
    handle.report_errors()
    handle.report_worker_events()
    await wait_until_ready(handle.object)


async def _open_events(handle: OfficialHandle, args: Json, options: Json) -> None:
    if QueueEvents is object:
        raise Unsupported("this version of the client has no QueueEvents")
    autorun = options.pop("autorun", True)
    # Started by the driver below: autorun would read before the listeners and the start position are set.
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


async def _run(handle: OfficialHandle) -> None:
    """Read events until the object is closed; an error that ends the loop is reported as the client's autorun does."""
    try:
        await handle.object.run()
    except Exception as error:  # noqa: BLE001 - the listener gets any error that ends the loop
        handle.send("error", {"message": text_of(error)})


OPENERS: dict[str, Callable[[OfficialHandle, Json, Json], Awaitable[None]]] = {
    "queue": _open_queue,
    "worker": _open_worker,
    "events": _open_events,
    "flow": _open_flow,
}


if __name__ == "__main__":
    OfficialDriver().server.run()
