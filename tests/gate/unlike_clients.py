"""`python -m tests.gate.unlike_clients nothing|odd`: two clients that no client of the kit resembles, as drivers.

`nothing` does nothing right: it answers `ok` with wrong or missing values, writes nothing, and its workers never get a
job. `odd` does what the reference does, but its close returns at once, and its ids, texts and sizes are all odd.
A run of either must end by itself, with a reason for everything and with reports of a readable size.
"""

from __future__ import annotations

import asyncio
import sys
import types
import typing
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import redis.asyncio

from conformance.driver.ops import REGISTRY
from conformance.driver.ops.base import Ids, JobRef, Nothing
from conformance.driver.serve import MAX_LINE_BYTES, DriverServer, Handler, Json, OpError, Unsupported
from conformance.reference_impl.driver.main import DEEPEST_JSON, make_server, use_fast_loop
from conformance.reference_impl.scripts.runner import official_scripts

ODD_TEXT = "<b>&\"'\x1b[31m\x00\u202e\u2028|`*]]>\r\n"
ILL_FORMED = b"\xff\xed\xa0\x80<script>\x1b[2J" * 4
"""Invalid UTF-8, a lone surrogate, markup, and a terminal sequence."""
LARGE = 60_000
"""Characters of a text that is much too long for a report."""
TEXTS_PER_CALL = 40
"""Texts of scripts that `odd` sends again with each operation."""


# The client that does nothing right.


def doing_nothing() -> DriverServer:
    """Return a driver that declares everything and does nothing."""
    return DriverServer(
        client={"name": "nothing", "language": "none", "version": "0"},
        capabilities=("clock", "manual-worker", "managed-worker"),
        ops={name: _answering(name, op.answer) for name, op in REGISTRY.items()},
        on_clock=lambda _: None,
    )


def _answering(name: str, answer: type[Any]) -> Handler:
    value: Json = _wrong(answer)
    # Half of the operations lack the values of their answer; those that add something return an id, so that runs go on.
    if zlib.crc32(name.encode()) % 2 and answer not in (Nothing, JobRef, Ids):
        value = {}

    async def handle(handle: str | None, _args: Json) -> Json:
        # A driver that claims to have added the job of the honesty probe would not be run at all.
        if name == "queue.add" and handle == "honesty":
            raise OpError("other", "not today")
        return value

    return handle


def _wrong(kind: Any) -> Any:
    """Return a value that is valid for a type of the protocol, and means nothing."""
    simple = {str: "nothing", int: 41, float: 41.5, bool: True, type(None): None, Any: "nothing"}
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.name: _wrong(field.type) for field in msgspec.structs.fields(kind)}
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in typing.get_args(kind) else _wrong(typing.get_args(kind)[0])
    return {list: [], dict: {}}.get(origin)


# The client whose close, ids, texts and sizes are odd.


def being_odd() -> DriverServer:
    """Return the reference's driver with oddities."""
    scripts = official_scripts()
    server = make_server(lambda: scripts)
    server.client = {**server.client, "name": f"odd {ODD_TEXT}"}
    oddities = Oddities(next(iter(scripts.values())) if isinstance(scripts, dict) else "return 1")
    for name, handler in server.ops.items():
        server.ops[name] = oddities.around(name, handler, server)
    return server


class Oddities:
    """Odd habits of a client. `text`: of a script that it sends again and again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._opened: dict[str, Json] = {}
        self._closing: set[asyncio.Task[Any]] = set()
        self._number = 0

    def around(self, name: str, handler: Handler, server: DriverServer) -> Handler:
        """Return the handler of an operation with everything that is odd about it."""
        special: dict[str, Callable[[Handler, DriverServer], Handler]] = {
            "open": self._open,
            "close": self._close,
            "reset": self._reset,
            "queue.add": self._add,
            "queue.getJob": self._large_answer,
            "queue.getJobLogs": self._endless_answer,
        }
        change = special.get(name)
        return change(handler, server) if change else self._loud(handler)

    def _loud(self, handler: Handler) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            print(ODD_TEXT * 20, file=sys.stderr)
            if name is not None and name not in self._opened:
                raise OpError("invalid-argument", f"there is no handle {name} {ODD_TEXT}")
            try:
                answer = await handler(name, args)
            except OpError as error:
                raise OpError(error.code, f"{error.message}{ODD_TEXT * 50}", error.definite, error.status) from error
            await self._send_texts(name)
            return {**(answer or {}), ODD_TEXT: ODD_TEXT}

        return handle

    def _open(self, handler: Handler, _server: DriverServer) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            await asyncio.gather(*self._closing, return_exceptions=True)
            answer = await handler(name, args)
            self._opened[name or ""] = args
            return answer

        return handle

    def _close(self, handler: Handler, _server: DriverServer) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            # The handle is gone at once, even if its worker is still busy.
            if self._opened.pop(name or "", None) is not None:
                task = asyncio.ensure_future(handler(name, args))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            return None

        return handle

    def _reset(self, handler: Handler, _server: DriverServer) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            self._opened.clear()
            return await handler(name, args)

        return handle

    def _add(self, handler: Handler, _server: DriverServer) -> Handler:
        loud = self._loud(handler)

        async def handle(name: str | None, args: Json) -> Json | None:
            opts = args.get("opts") or {}
            self._number += 1
            own = opts if opts.get("jobId") or opts.get("repeat") else {**opts, "jobId": f"{ODD_TEXT}{self._number}"}
            answer = await loud(name, {**args, "opts": own})
            opened = self._opened.get(name or "")
            if opened and answer:
                async with _redis_of(opened) as client:
                    key = f"{opened['prefix']}:{opened['queue']}:{answer['id']}"
                    await client.hset(key, mapping={"note": ILL_FORMED, ODD_TEXT: "x" * LARGE})
                    if self._number % 3 == 0:
                        await client.hset(key, "data", ILL_FORMED)
            return answer

        return handle

    def _large_answer(self, handler: Handler, _server: DriverServer) -> Handler:
        loud = self._loud(handler)

        async def handle(name: str | None, args: Json) -> Json | None:
            answer = await loud(name, args)
            if answer and answer.get("job"):
                answer["job"]["name"] += "y" * LARGE
            return answer

        return handle

    def _endless_answer(self, _handler: Handler, server: DriverServer) -> Handler:
        async def handle(_name: str | None, _args: Json) -> Json | None:
            server._write(b"{" + b" " * MAX_LINE_BYTES + b"\n")
            raise Unsupported("it has answered already")

        return handle

    async def _send_texts(self, name: str | None) -> None:
        opened = self._opened.get(name or "")
        if opened and opened["role"] == "queue":
            async with _redis_of(opened) as client:
                for _ in range(TEXTS_PER_CALL):
                    await client.eval("return 1", 0)


def _redis_of(opened: Json) -> Any:
    return redis.asyncio.Redis.from_url(f"redis://{opened['redis']['nodes'][0]}")


def main() -> None:
    sys.setrecursionlimit(DEEPEST_JSON)
    use_fast_loop()
    {"nothing": doing_nothing, "odd": being_odd}[sys.argv[1]]().run()


if __name__ == "__main__":
    main()
