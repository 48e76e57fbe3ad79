"""A client finds its scripts by itself, in a thread, and calls keep their order meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import pytest

from conformance.problems import EnvironmentProblem
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.policy import Policy, ReconnectPolicy
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts import texts
from conformance.reference_impl.scripts.texts import OfficialTexts, ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import RedisInstance
from conformance.upstream import lua_download


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not looked for the scripts yet."""
    monkeypatch.setattr(texts, "_OFFICIAL", OfficialTexts())


@pytest.mark.usefixtures("fresh")
def test_the_event_loop_goes_on_while_scripts_are_fetched(
    connection: dict[str, Any],
    prefix: str,
    scripts: ScriptTexts,
    server: RedisInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, served = threading.Event(), threading.Event()
    looked: list[str] = []

    def slow(**_: Any) -> ScriptTexts:
        looked.append(threading.current_thread().name)
        started.set()
        assert served.wait(30)
        return scripts

    monkeypatch.setattr(lua_download, "scripts_without_node", slow)

    async def steps() -> None:
        queues = [Queue("q", {"connection": connection, "prefix": prefix}) for _ in range(2)]
        adding = [asyncio.create_task(queues[0].add(str(number), number)) for number in range(20)]
        other = asyncio.create_task(queues[1].getJobCounts("waiting"))
        await asyncio.to_thread(started.wait, 30)
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


class NotifyingTexts(OfficialTexts):
    """Says when they are found."""

    def __init__(self) -> None:
        super().__init__()
        self.there = threading.Event()

    def get(self) -> ScriptTexts:
        try:
            return super().get()
        finally:
            self.there.set()


def test_calls_that_find_the_scripts_do_not_overtake_calls_that_waited_for_them(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, served, official = threading.Event(), threading.Event(), NotifyingTexts()

    def slow(**_: Any) -> ScriptTexts:
        started.set()
        assert served.wait(30)
        return scripts

    monkeypatch.setattr(lua_download, "scripts_without_node", slow)
    monkeypatch.setattr(texts, "_OFFICIAL", official)

    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix})
        await queue.waitUntilReady()
        adding = [asyncio.create_task(queue.add("waits", number)) for number in range(20)]
        await asyncio.to_thread(started.wait, 30)
        served.set()
        assert official.there.wait(30), "the event loop is blocked meanwhile: no waiter has the scripts yet"
        for number in range(20, 60):
            adding.append(asyncio.create_task(queue.add("comes", number)))
            await asyncio.sleep(0)
        assert await data_in_order(adding) == list(range(60))
        await queue.close()

    asyncio.run(steps())


def test_calls_after_the_opening_do_not_overtake_calls_that_waited_for_it(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts
) -> None:
    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix}, scripts=scripts)
        adding = [asyncio.create_task(queue.add("waits", number)) for number in range(300)]
        await adding[0]
        adding.append(asyncio.create_task(queue.add("comes", 300)))
        assert await data_in_order(adding) == list(range(301))
        await queue.close()

    asyncio.run(steps())


async def data_in_order(adding: Iterable[Awaitable[Job]]) -> list[Any]:
    """The data of the jobs, in the order in which Redis added them."""
    return [job.data for job in sorted(await asyncio.gather(*adding), key=lambda job: int(job.id or 0))]


@pytest.mark.usefixtures("fresh")
def test_an_error_in_a_lookup_reaches_all_calls_that_waited_for_it(
    connection: dict[str, Any], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def unreachable(**_: Any) -> ScriptTexts:
        looked.append(threading.current_thread().name)
        raise EnvironmentProblem("no registry", hint="try again")

    monkeypatch.setattr(lua_download, "scripts_without_node", unreachable)

    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix})
        await queue.waitUntilReady()
        adding = [asyncio.create_task(queue.add("a", number)) for number in range(20)]
        ends = await asyncio.gather(*adding, return_exceptions=True)
        assert [str(end) for end in ends] == ["no registry — try again"] * 20
        await queue.close()

    asyncio.run(steps())
    assert len(looked) == 1, "each look may take as long as a network does"


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


@pytest.mark.usefixtures("fresh")
def test_a_worker_rests_while_scripts_cannot_be_had(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**_: Any) -> ScriptTexts:
        raise EnvironmentProblem("no registry", hint="try again")

    monkeypatch.setattr(lua_download, "scripts_without_node", unreachable)
    policy = Policy(reconnect=ReconnectPolicy(first_s=0.02, longest_s=5))

    async def steps() -> None:
        opts: dict[str, Any] = {"connection": connection, "prefix": prefix, "policy": policy}
        times, enough, done = list[float](), asyncio.Event(), asyncio.Event()

        def note(_error: BaseException) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 8:
                enough.set()

        worker = Worker("q", lambda _job: done.set(), {**opts, "skipStalledCheck": True})
        worker.on("error", note)
        async with asyncio.timeout(60), Queue("q", opts, scripts=scripts) as queue:
            await enough.wait()
            # Six pauses at least, from 20 to 640 ms, less their jitter of 20 %. A slow machine only adds to them.
            assert times[7] - times[0] >= 0.8 * 1.260, times
            monkeypatch.setattr(lua_download, "scripts_without_node", lambda **_: scripts)
            await queue.add("a", 1)
            await done.wait()
        await worker.close()

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
