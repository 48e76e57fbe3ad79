"""Clients that break with the network, with Redis and what it has evicted, or with other clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

from redis.exceptions import NoScriptError

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.move import FetchReply, MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner
from conformance.reference_impl.workers.fetching import JobFetcher, ScheduleContinuation
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker
from conformance.reference_impl.workers.worker import Worker

_REST_S: Final = 0.05


@mutant("faults.nobody-checks", kills=("chaos.crash", "interop.stalled"))
def no_worker_checks(damage: Damage) -> None:
    """A worker never looks for jobs whose worker is gone."""

    async def nothing(_checker: StalledChecker) -> None:
        return None

    damage.replace(StalledChecker, "start", nothing)


@mutant("faults.gives-up", kills=("chaos.reconnect",))
def gives_up(damage: Damage) -> None:
    """A worker drops what it was doing when its connection is lost."""

    def once(_persist: Function) -> Function:
        async def try_once(worker: Worker, act: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await act()
            except Exception as error:
                if is_connection_problem(error):
                    await worker.rest(worker.policy.reconnect.first_s)
                raise

        return try_once

    damage.around(Worker, "persist", once)


@mutant("faults.gives-up-soon", kills=("chaos.reconnect",), by=("connections/a_result_waits_for_redis",))
def gives_up_soon(damage: Damage) -> None:
    """A worker tries three times within 100 ms to reach Redis, and then drops what it was doing."""

    def hasty(_persist: Function) -> Function:
        async def try_thrice(_worker: Worker, act: Callable[[], Awaitable[Any]], **_how: Any) -> Any:
            for pause_s in (0.008, 0.016, 0.032):
                try:
                    return await act()
                except Exception as error:
                    if not is_connection_problem(error):
                        raise
                    damage.witness.note()
                    await asyncio.sleep(pause_s)
            return await act()

        return try_thrice

    damage.around(Worker, "persist", hasty)


@mutant("faults.drops-a-failure", kills=("chaos.reconnect",))
def drops_a_failure(damage: Damage) -> None:
    """A worker drops the failure of a job if the connection is lost while it is stored."""

    def broken(fail: Function) -> Function:
        async def fail_or_forget(job: Job, error: BaseException, token: str, fetch_next: bool = False) -> Any:
            try:
                return await fail(job, error, token, fetch_next)
            except Exception as problem:
                if not is_connection_problem(problem):
                    raise
                return None

        return fail_or_forget

    damage.around(Job, "moveToFailed", broken)


@mutant("faults.reads-from-now", kills=("chaos.reconnect",))
def reads_from_now(damage: Damage) -> None:
    """A reader of events restarts at the newest entry after a lost connection."""

    def forgetful(read: Function) -> Function:
        async def read_or_forget(reader: QueueEvents) -> None:
            try:
                await read(reader)
            except Exception:
                vars(reader)["_last_id"] = None
                damage.witness.note()
                raise

        return read_or_forget

    damage.around(QueueEvents, "_read", forgetful)


@mutant("faults.failed-renewal-cancels", kills=("chaos.renewal-survives",))
def failed_renewal_cancels(damage: Damage) -> None:
    """A worker cancels its running jobs when a renewal meets a lost connection, although their locks still live."""

    def emit_and_cancel(keeper: LockKeeper, _job_ids: list[str], error: Exception) -> None:
        if is_connection_problem(error):
            worker: Worker = vars(keeper)["_worker"]
            for task in vars(vars(worker)["_loop"])["_running"]:
                task.cancel()

    damage.replace(LockKeeper, "_emit_failure", emit_and_cancel)


@mutant("faults.loads-once", kills=("chaos.redis-restart",))
def loads_once(damage: Damage) -> None:
    """The text of a script is sent once, and never again to a Redis that has forgotten it."""
    sent: set[str] = set()

    def sparing(by_text: Function) -> Function:
        def text_or_digest(runner: ScriptRunner, call: EvalCommand) -> Any:
            if call.name in sent:
                return vars(ScriptRunner)["_by_digest"](runner, call)
            sent.add(call.name)
            return by_text(runner, call)

        return text_or_digest

    def unhurried(fetch: Function) -> Function:
        # As Node's its loop tries again at once, and would keep a processor busy until the test ends.
        async def fetched_or_rested(fetcher: JobFetcher, token: str, *, block: bool) -> Job | None:
            try:
                job: Job | None = await fetch(fetcher, token, block=block)
            except NoScriptError:
                await asyncio.sleep(_REST_S)
                raise
            return job

        return fetched_or_rested

    damage.around(ScriptRunner, "_by_text", sparing)
    damage.around(JobFetcher, "fetch", unhurried)


@mutant("faults.takes-into-memory", kills=("chaos.at-least-once",))
def takes_into_memory(damage: Damage) -> None:
    """A claimed job is taken out of Redis's lists, so that it is never recovered if the reply does not arrive."""
    damage.commands(
        "moveToActive",
        'if command[1] == "RPOPLPUSH" then return send("RPOP", command[2]) end',
    )
    damage.commands("moveToFinished", 'if command[1] == "LREM" then send(unpack(command)) return 1 end')


@mutant("eviction.remembers-the-check", kills=("eviction.throttles",))
def remembers_the_check(damage: Damage) -> None:
    """A client keeps the interval of the stalled check in its own memory."""
    last: dict[int, float] = {}

    def remembering(check: Function) -> Function:
        async def move_stalled(scripts: MoveScripts) -> list[str]:
            interval_s = vars(scripts)["_owner"].opts["stalledInterval"] / 1000
            if time.monotonic() - last.get(id(scripts), -interval_s) < interval_s:
                return []
            last[id(scripts)] = time.monotonic()
            recovered: list[str] = await check(scripts)
            return recovered

        return move_stalled

    damage.around(MoveScripts, "move_stalled_jobs_to_wait", remembering)


@mutant("eviction.skips-the-nameless", kills=("eviction.hash.waiting", "eviction.worker-goes-on"))
def skips_the_nameless(damage: Damage) -> None:
    """A claimed job that has no name is dropped, and stays in `active`."""

    def dropping(claim: Function) -> Function:
        async def move_to_active(scripts: MoveScripts, token: str) -> FetchReply:
            fetched: FetchReply = await claim(scripts, token)
            return fetched if fetched.fields is None or "name" in fetched.fields else FetchReply()

        return move_to_active

    damage.around(MoveScripts, "move_to_active", dropping)


@mutant("eviction.keeps-silent", kills=("eviction.worker-goes-on", "liveness.fetch-fails"))
def keeps_silent(damage: Damage) -> None:
    """A worker does not report that it could not finish a job."""
    damage.replace(Worker, "report", lambda _worker, _error: None)


@mutant("eviction.hides-holes", kills=("eviction.reported",))
def hides_holes(damage: Damage) -> None:
    """Jobs without hash are left out of what is read."""

    def without_holes(read: Function) -> Function:
        async def get_jobs(queue: Queue, types: Sequence[str], *args: Any) -> list[Job]:
            return [job for job in await read(queue, types, *args) if job is not None]

        return get_jobs

    damage.around(Queue, "getJobs", without_holes)


@mutant("eviction.remembers-the-pause", kills=("eviction.meta",))
def remembers_the_pause(damage: Damage) -> None:
    """A queue answers from memory whether it is paused."""
    paused: set[str] = set()

    def noting(pause: Function) -> Function:
        async def pause_and_note(queue: Queue) -> None:
            await pause(queue)
            paused.add(queue.keys.base)

        return pause_and_note

    async def is_paused(queue: Queue) -> bool:
        return queue.keys.base in paused

    damage.around(Queue, "pause", noting)
    damage.replace(Queue, "isPaused", is_paused)


@mutant("eviction.needs-a-marker", kills=("eviction.marker",))
def needs_a_marker(damage: Damage) -> None:
    """A worker claims jobs only when a marker wakes it."""

    def patient(_healthy: Function) -> Function:
        async def fetch(fetcher: JobFetcher, token: str, *, block: bool) -> Job | None:
            worker: Worker = vars(fetcher)["_worker"]
            if block or not vars(fetcher).get("woken"):
                vars(fetcher)["woken"] = await worker.blocking_connection.command(
                    "BZPOPMIN", worker.keys.key("marker"), 60
                )
            move: Callable[[str], Awaitable[Job | None]] = vars(JobFetcher)["_move_to_active"].__get__(fetcher)
            return await move(token)

        return fetch

    damage.around(JobFetcher, "fetch", patient)


@mutant("eviction.reader-ends", kills=("eviction.events",))
def reader_ends(damage: Damage) -> None:
    """A reader of events stops when its stream was replaced."""

    def faithful(emit: Function) -> Function:
        def emit_while_it_grows(reader: QueueEvents, fields: dict[str, Any], entry_id: str) -> None:
            seen = vars(reader).setdefault("seen", SimpleNamespace(added=0))
            seen.added += fields.get("event") == "added"
            if fields.get("jobId") in (None, str(seen.added)) and seen.added > 1:
                return
            emit(reader, fields, entry_id)

        return emit_while_it_grows

    damage.around(QueueEvents, "_emit_entry", faithful)


@mutant("eviction.runs-the-last-iteration", kills=("eviction.scheduler",))
def runs_the_last_iteration(damage: Damage) -> None:
    """An iteration is run although the next one could not be made."""

    def careless(_healthy: Function) -> Function:
        async def continue_from(schedules: ScheduleContinuation, job: Job) -> bool:
            with contextlib.suppress(Exception):
                await vars(ScheduleContinuation)["_try_often"](schedules, job)
            return True

        return continue_from

    damage.around(ScheduleContinuation, "continue_from", careless)


@mutant("eviction.full-is-fine", kills=("eviction.refused", "edge.largest-value"))
def full_is_fine(damage: Damage) -> None:
    """An add that Redis has refused is answered as if it had been taken."""

    def optimistic(add: Function) -> Function:
        async def add_somehow(queue: Queue, name: str, data: Any, opts: Any = None) -> Any:
            try:
                return await add(queue, name, data, opts)
            except Exception:  # noqa: BLE001 - that is the defect
                return SimpleNamespace(id="0")

        return add_somehow

    damage.around(Queue, "add", optimistic)


@mutant(
    "eviction.remembers-owners",
    kills=("eviction.throttles",),
    by=("eviction/a_lost_deduplication_lets_a_second_job_in",),
)
def remembers_owners(damage: Damage) -> None:
    """A producer remembers the owner of a deduplication id, and does not ask Redis."""
    owners: dict[str, Job] = {}

    def remembering(add: Function) -> Function:
        async def add_once(queue: Queue, name: str, data: Any, opts: Any = None) -> Job:
            wanted = ((opts or {}).get("deduplication") or {}).get("id")
            key = f"{queue.keys.base}:{wanted}"
            if wanted and key in owners:
                return owners[key]
            job: Job = await add(queue, name, data, opts)
            owners[key] = job
            return job

        return add_once

    damage.around(Queue, "add", remembering)
