"""`python -m tests.gate.hostile_clients NAME`: clients that hurt the run itself, as drivers.

`endless-add` and `endless-finish` are the reference with an endless Lua script, `endless-write` with one that has
written before. `ends` ends before the handshake, `mute` never answers an operation of a client, and `floods` is the
reference, which meanwhile sends commands to Redis as fast as it can.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import redis.asyncio

from conformance.driver.serve import DriverServer, Handler, Json
from conformance.mutants.damage import FilteredScript
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts

ENDLESS = "while true do end\n"
SCRIPTS = {
    "endless-add": ("addStandardJob", ENDLESS),
    "endless-finish": ("moveToFinished", ENDLESS),
    "endless-write": ("moveToFinished", f"redis.call('SET', KEYS[1] .. ':endless', 1)\n{ENDLESS}"),
}
"""By the client: the script, and what it starts with."""
FLOOD = 200
"""Commands in each packet of the flood."""


def endless(client: str) -> DriverServer:
    """Return the reference's driver with a script that never ends."""
    name, head = SCRIPTS[client]
    official = official_scripts()
    script = official[name]
    broken = FilteredScript(name, script.key_count, head + script.text)
    return make_server(lambda: {**official, name: broken})


def mute() -> DriverServer:
    """Return the reference's driver, which answers no call of a queue, a job or a worker."""
    server = make_server(official_scripts)
    for name in server.ops:
        if "." in name:
            server.ops[name] = _never
    return server


async def _never(_handle: str | None, _args: Json) -> Json | None:
    await asyncio.Event().wait()
    return None


def floods() -> DriverServer:
    """Return the reference's driver, whose flood starts with the first worker and never ends."""
    server = make_server(official_scripts)
    server.ops["open"] = _flooding(server.ops["open"])
    return server


def _flooding(handler: Handler) -> Handler:
    floods: list[asyncio.Task[Any]] = []

    async def handle(name: str | None, args: Json) -> Json | None:
        answer = await handler(name, args)
        if args["role"] == "worker":
            floods.append(asyncio.ensure_future(_flood(args["redis"]["nodes"][0])))
        return answer

    return handle


async def _flood(node: str) -> None:
    while True:
        try:
            async with redis.asyncio.Redis.from_url(f"redis://{node}") as client:
                while True:
                    pipeline = client.pipeline(transaction=False)
                    for _ in range(FLOOD):
                        pipeline.eval("return 1", 0)
                    await pipeline.execute()
        except redis.asyncio.RedisError:
            await asyncio.sleep(0)


def main() -> None:
    match sys.argv[1]:
        case "ends":
            raise ImportError("no module named bullmq_of_tomorrow")
        case "mute":
            mute().run()
        case "floods":
            floods().run()
        case client:
            endless(client).run()


if __name__ == "__main__":
    main()
