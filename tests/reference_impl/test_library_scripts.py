"""A client finds its scripts by itself, in a thread, and calls keep their order meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from conformance.problems import EnvironmentProblem
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts import runner
from conformance.reference_impl.scripts.runner import OfficialTexts, ScriptTexts
from conformance.servers import RedisInstance
from conformance.upstream import lua_download


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not looked for the scripts yet."""
    monkeypatch.setattr(runner, "_OFFICIAL", OfficialTexts())


@pytest.mark.usefixtures("fresh")
def test_the_event_loop_goes_on_while_scripts_are_fetched(
    connection: dict[str, Any],
    prefix: str,
    scripts: ScriptTexts,
    server: RedisInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, served = threading.Event(), threading.Event()
    looked: list[str] = []

    def slow(**_: Any) -> ScriptTexts:
        looked.append(threading.current_thread().name)
        begun.set()
        assert served.wait(30)
        return scripts

    monkeypatch.setattr(lua_download, "scripts_without_node", slow)

    async def steps() -> None:
        queues = [Queue("q", {"connection": connection, "prefix": prefix}) for _ in range(2)]
        adding = [asyncio.create_task(queues[0].add(str(number), number)) for number in range(20)]
        other = asyncio.create_task(queues[1].getJobCounts("waiting"))
        await asyncio.to_thread(begun.wait, 30)
        assert await queues[1].isPaused() is False, "what needs no script is not held up"
        adding[3].cancel()
        served.set()
        await asyncio.gather(*adding, other, return_exceptions=True)
        names = [server.connect().hget(f"{prefix}:q:{number}", "name") for number in range(1, 20)]
        assert names == [str(number).encode() for number in range(20) if number != 3]
        for queue in queues:
            await queue.close()

    asyncio.run(steps())
    assert len(looked) == 1
    assert looked[0] != threading.main_thread().name


@pytest.mark.usefixtures("fresh")
def test_scripts_that_cannot_be_had_are_an_error_of_the_call(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**_: Any) -> ScriptTexts:
        raise EnvironmentProblem("no registry", hint="try again")

    monkeypatch.setattr(lua_download, "scripts_without_node", unreachable)

    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix})
        with pytest.raises(BullMQError, match="no registry — try again"):
            await queue.add("a", 1)
        monkeypatch.setattr(lua_download, "scripts_without_node", lambda **_: scripts)
        assert (await queue.add("a", 1)).id == "1"
        await queue.close()

    asyncio.run(steps())


def test_scripts_from_a_folder(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, tmp_path: Path) -> None:
    for script in scripts.values():
        (tmp_path / f"{script.name}-{script.key_count}.lua").write_text(script.text, "utf-8")

    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix}, scripts=tmp_path)
        assert (await queue.add("a", 1)).id == "1"
        await queue.close()

    asyncio.run(steps())
    with pytest.raises(BullMQError, match="there are no Lua scripts of bullmq in /nowhere"):
        Queue("q", {"connection": connection}, scripts="/nowhere")
