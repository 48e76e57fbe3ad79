"""`python -m tests.gate.limited_driver [LIMITS]`: the reference's driver as a client that is least like Node.

The client behind it is correct: any finding of a run, other than about the limit that was requested, is false.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from conformance.driver.serve import DriverServer, Handler, Json, OpError, Unsupported
from conformance.reference_impl.driver.main import DEEPEST_JSON, make_server
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner, official_scripts

ALWAYS = frozenset({"open", "close", "reset"})
"""Without these no driver gets as far as its first job."""

ASKED_FOR = frozenset({"job", "queue-event"})
"""Events that a worker does not emit: jobs that a processor hands to the kit, and entries of the event stream."""

JOB_FIELDS = ("id", "name", "data_raw")
"""Required fields of a job."""


def limited(server: DriverServer, limits: argparse.Namespace) -> DriverServer:
    server.client = {**server.client, "name": "limited"}
    if limits.only is not None:
        server.ops = {name: handler for name, handler in server.ops.items() if name in ALWAYS | set(limits.only)}
    for name in limits.without:
        del server.ops[name]
    if limits.capabilities is not None:
        server.capabilities = limits.capabilities
    if limits.ids:
        _number_otherwise(server, limits.ids)
    if limits.roles is not None:
        _wrap(server, "open", lambda handler: _opening_only(handler, limits.roles))
    if limits.no_options:
        _wrap(server, "open", lambda handler: _without_options(handler, limits.no_options))
    if limits.fixed_prefix:
        _wrap(server, "open", lambda handler: _with_arguments(handler, prefix=limits.fixed_prefix))
    _misbehave(server, limits)
    _waste(limits)
    if limits.no_worker_events:
        _keep_events_back(server)
    _answer_less(server, limits.no_answer)
    if limits.bare_jobs:
        _show_bare_jobs(server)
    _announce(server, limits)
    return server


def _misbehave(server: DriverServer, limits: argparse.Namespace) -> None:
    """Operations that never come back, come late, end the process, do nothing, or say that they lost the connection."""
    changes: dict[str, Callable[[Handler], Handler]] = {
        "hang": lambda _: _hang,
        "slow": lambda handler: _late(handler, limits.slow_ms / 1000),
        "crash": lambda _: _crash,
        "lose": lambda _: _lose,
        "ignore": lambda _: _ignore,
    }
    for limit, change in changes.items():
        for name in getattr(limits, limit):
            _wrap(server, name, change)


def _waste(limits: argparse.Namespace) -> None:
    """Every script takes longer, also in a worker's own loop, and leaves memory behind."""
    run, kept = ScriptRunner.run, []

    async def wasteful(runner: ScriptRunner, call: EvalCommand) -> Any:
        await asyncio.sleep(limits.script_ms / 1000)
        kept.append(os.urandom(limits.leak_bytes))
        return await run(runner, call)

    if limits.script_ms or limits.leak_bytes:
        ScriptRunner.run = wasteful  # type: ignore[method-assign, assignment]


def _wrap(server: DriverServer, name: str, change: Callable[[Handler], Handler]) -> None:
    server.ops[name] = change(server.ops[name])


def _with_arguments(handler: Handler, **others: Any) -> Handler:
    async def handle(name: str | None, args: Json) -> Json | None:
        return await handler(name, {**args, **others})

    return handle


def _opening_only(handler: Handler, roles: Sequence[str]) -> Handler:
    async def handle(name: str | None, args: Json) -> Json | None:
        if args["role"] not in roles:
            raise Unsupported(f"there is no {args['role']}")
        return await handler(name, args)

    return handle


def _without_options(handler: Handler, unknown: Sequence[str]) -> Handler:
    async def handle(name: str | None, args: Json) -> Json | None:
        if given := [option for option in unknown if option in (args.get("options") or {})]:
            raise Unsupported(f"there is no option {given[0]}")
        return await handler(name, args)

    return handle


async def _hang(_handle: str | None, _args: Json) -> Json:
    return await asyncio.Future()


def _late(handler: Handler, seconds: float) -> Handler:
    async def handle(name: str | None, args: Json) -> Json | None:
        await asyncio.sleep(seconds)
        return await handler(name, args)

    return handle


async def _crash(_handle: str | None, _args: Json) -> Json:
    print("panic: limited driver was asked to crash\n\tat limited.go:17", file=sys.stderr, flush=True)
    os._exit(42)


async def _ignore(_handle: str | None, _args: Json) -> Json:
    return {}


async def _lose(_handle: str | None, _args: Json) -> Json:
    raise OpError("connection-lost", "the connection is closed", status="info")


# Ids.


def _uuids() -> Iterator[str]:
    while True:
        yield str(uuid.uuid4())


def _named() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"job-{number}"


ID_SCHEMES: dict[str, Callable[[], Iterator[str]]] = {"uuid": _uuids, "named": _named}


def _number_otherwise(server: DriverServer, scheme: str) -> None:
    """Jobs without an id of the user's get one of the client's own, and never that of Redis' counter."""

    ids = ID_SCHEMES[scheme]()

    def with_id(job: Json) -> Json:
        opts = job.get("opts") or {}
        named = opts.get("jobId") or opts.get("repeat")  # the jobs of a schedule are named after it
        return {**job, "opts": opts if named else {**opts, "jobId": next(ids)}}

    def tree_with_ids(node: Json) -> Json:
        return {**with_id(node), "children": [tree_with_ids(child) for child in node.get("children") or []]}

    changes: dict[str, Callable[[Json], Json]] = {
        "queue.add": with_id,
        "queue.addBulk": lambda args: {**args, "jobs": [with_id(job) for job in args["jobs"]]},
        "flow.add": lambda args: {**args, "flow": tree_with_ids(args["flow"])},
        "flow.addBulk": lambda args: {**args, "flows": [tree_with_ids(flow) for flow in args["flows"]]},
    }
    for name, change in changes.items():
        if name in server.ops and not (scheme == "uuid" and name.startswith("flow.")):  # those have uuids anyway
            _wrap(server, name, lambda handler, change=change: _changed(handler, change))  # type: ignore[misc]


def _changed(handler: Handler, change: Callable[[Json], Json]) -> Handler:
    async def handle(name: str | None, args: Json) -> Json | None:
        return await handler(name, change(args))

    return handle


# The messages that it sends.


def _keep_events_back(server: DriverServer) -> None:
    emit = server.emit

    def emit_some(handle: str, name: str, args: Json | None = None) -> None:
        if name in ASKED_FOR or not handle.startswith("worker"):
            emit(handle, name, args)

    server.emit = emit_some  # type: ignore[method-assign]


def _answer_less(server: DriverServer, operations: Sequence[str]) -> None:
    """Of these operations the client's user learns that they are done, and nothing else."""
    outcome_of = server._outcome

    async def outcome(call: Json) -> Json:
        outcome = await outcome_of(call)
        silent = call["op"] in operations and outcome["status"] == "ok"
        return {"status": "ok", "no_answer": True} if silent else outcome

    server._outcome = outcome  # type: ignore[method-assign]


def _show_bare_jobs(server: DriverServer) -> None:
    """Jobs have the required fields only, as a driver's author writes them first."""
    outcome_of, emit = server._outcome, server.emit

    def bare(message: Json) -> Json:
        job = message.get("job")
        return {**message, "job": {name: job[name] for name in JOB_FIELDS}} if isinstance(job, dict) else message

    async def outcome(call: Json) -> Json:
        outcome = await outcome_of(call)
        return {**outcome, "value": bare(outcome["value"])} if isinstance(outcome.get("value"), dict) else outcome

    server._outcome = outcome  # type: ignore[method-assign]
    server.emit = lambda handle, name, args=None: emit(handle, name, args and bare(args))  # type: ignore[method-assign]


def _announce(server: DriverServer, limits: argparse.Namespace) -> None:
    """Say in the handshake what a client of this kind has to say."""
    ready_of = server._ready

    def ready() -> Json:
        said: Json = ready_of()
        if limits.fixed_prefix:
            said["fixed_prefix"] = limits.fixed_prefix
        if limits.no_worker_events:
            said["lacks"] = ["worker-events"]
        return said

    server._ready = ready  # type: ignore[method-assign]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def parser() -> argparse.ArgumentParser:
    """The limits; lists are separated by commas."""
    options = argparse.ArgumentParser(prog="limited_driver", description=__doc__)
    options.add_argument("--only", type=_words, help="the only operations, besides open, close and reset")
    options.add_argument("--without", type=_words, default=[], help="operations that it lacks")
    options.add_argument("--capabilities", type=_words, help="all that it declares")
    options.add_argument("--roles", type=_words, help="the only objects that it opens")
    options.add_argument("--no-options", type=_words, default=[], help="options that no object of it has")
    options.add_argument("--ids", choices=sorted(ID_SCHEMES), help="ids of its own instead of the counter's")
    options.add_argument("--fixed-prefix", default="", help="the only prefix that it knows")
    options.add_argument("--no-worker-events", action="store_true", help="its workers report nothing")
    options.add_argument("--no-answer", type=_words, default=[], help="operations that are done without an answer")
    options.add_argument("--bare-jobs", action="store_true", help="jobs in answers have the required fields only")
    options.add_argument("--hang", type=_words, default=[], help="operations that never come back")
    options.add_argument("--slow", type=_words, default=[], help="operations that take --slow-ms more")
    options.add_argument("--slow-ms", type=int, default=500, help="how much more (ms)")
    options.add_argument("--script-ms", type=int, default=0, help="how much more every script takes (ms)")
    options.add_argument("--leak-bytes", type=int, default=0, help="memory that every script leaves behind")
    options.add_argument("--crash", type=_words, default=[], help="operations that end the process")
    options.add_argument("--ignore", type=_words, default=[], help="operations that are answered and not done")
    options.add_argument("--lose", type=_words, default=[], help="operations that lose their connection")
    return options


def main() -> None:
    limits = parser().parse_args()
    sys.setrecursionlimit(DEEPEST_JSON)
    scripts = official_scripts()
    limited(make_server(lambda: scripts), limits).run()


if __name__ == "__main__":
    main()
