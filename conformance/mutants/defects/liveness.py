"""Workers that sleep too long, stop, or take too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import NAMED_WORKER_INFIX
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.move import FetchReply
from conformance.reference_impl.workers import fetching as fetching_module
from conformance.reference_impl.workers import worker as worker_module
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.job_runner import JobRunner
from conformance.reference_impl.workers.worker import Worker

SOON_S = 1
"""A due time within this time (s) is near."""
POLL_S = 2.5
"""Longer than any scenario lets an idle worker sleep."""
GIVES_UP_S = 0.5
"""After this time (s) a client drops the answer to a blocking read."""


@mutant("worker.floods", kills=("liveness.idle-traffic",))
def floods(damage: Damage) -> None:
    """An idle worker takes the ms of its sleep for ns: it asks again and again, thousands of times a second."""

    async def sleep_too_short(_fetcher: JobFetcher, block_s: float) -> None:
        await asyncio.sleep(block_s / 1_000_000)

    damage.replace(JobFetcher, "_pop_marker", sleep_too_short)


@mutant("worker.gives-up-its-read", kills=("liveness.pickup",))
def gives_up_its_read(damage: Damage) -> None:
    """An idle worker drops the answer to a blocking read that comes after half a second, and looks again later."""

    def broken(pop: Function) -> Function:
        async def pop_in_time(fetcher: JobFetcher, block_s: float) -> Any:
            started = time.monotonic()
            popped = await pop(fetcher, block_s)
            took_s = time.monotonic() - started
            if popped is None or took_s < GIVES_UP_S:
                return popped
            damage.witness.note()
            worker: Worker = vars(fetcher)["_worker"]
            await worker.rest(block_s - took_s)
            return None

        return pop_in_time

    damage.around(JobFetcher, "_pop_marker", broken)


@mutant("worker.ends-when-empty", kills=("liveness.idle-after-work", "liveness.pickup"))
def ends_when_empty(damage: Damage) -> None:
    """A worker ends when it has run out of jobs."""

    def broken(emit_drained: Function) -> Function:
        def emit_and_end(fetcher: JobFetcher) -> None:
            emit_drained(fetcher)
            worker: Worker = vars(fetcher)["_worker"]
            worker.lifecycle.apply("pause")
            damage.witness.note()

        return emit_and_end

    damage.around(JobFetcher, "_emit_drained", broken)


@mutant("worker.whole-due-times", kills=("liveness.delayed",))
def whole_due_times(damage: Damage) -> None:
    """A worker cannot read a marker whose due time has a fraction."""

    def broken(parse: Function) -> Function:
        def parse_whole(text: str) -> int | None:
            if "." in text:
                raise ValueError(f"not an integer: {text}")
            whole: int | None = parse(text)
            return whole

        return parse_whole

    damage.around(fetching_module, "parse_int", broken)


@mutant("worker.complains", kills=("liveness.no-errors",))
def complains(damage: Damage) -> None:
    """A worker that has run out of jobs calls that an error."""

    def broken(emit_drained: Function) -> Function:
        def emit_and_complain(fetcher: JobFetcher) -> None:
            emit_drained(fetcher)
            worker: Worker = vars(fetcher)["_worker"]
            worker.emit("error", BullMQError("no job"))
            damage.witness.note()

        return emit_and_complain

    damage.around(JobFetcher, "_emit_drained", broken)


@mutant("worker.forgets-delayed", kills=("liveness.delayed",))
def forgets_delayed(damage: Damage) -> None:
    """An idle worker sleeps for `drainDelay`, also when a delayed job is due before."""
    damage.around(JobFetcher, "_block_timeout", lambda healthy: lambda fetcher, _until: healthy(fetcher, 0))


@mutant("worker.blocks-for-ever", kills=("liveness.blocks-for-a-time",))
def blocks_for_ever(damage: Damage) -> None:
    """Just before a delayed job is due, an idle worker blocks for a time that Redis may round to 0."""

    def broken(timeout: Function) -> Function:
        def shorter(fetcher: JobFetcher, until: float) -> float:
            block_s: float = timeout(fetcher, until)
            return block_s / 1000 if until and 0 < block_s < SOON_S else block_s

        return shorter

    damage.around(JobFetcher, "_block_timeout", broken)


@mutant("worker.close-abandons", kills=("liveness.close",))
def close_abandons(damage: Damage) -> None:
    """Closing a worker abandons its running jobs."""

    def broken(close: Function) -> Function:
        async def close_at_once(worker: Worker, _force: bool = False) -> None:
            await close(worker, True)

        return close_at_once

    damage.around(Worker, "close", broken)


@mutant("worker.close-waits-for-poll", kills=("liveness.close-ends",))
def close_waits_for_poll(damage: Damage) -> None:
    """Closing an idle worker waits until its poll of Redis ends."""

    def broken(close: Function) -> Function:
        async def close_late(worker: Worker, force: bool = False) -> None:
            if not force:
                await worker.rest(POLL_S)
                damage.witness.note()
            await close(worker, force)

        return close_late

    damage.around(Worker, "close", broken)


@mutant(
    "worker.close-waits-for-connection",
    kills=("liveness.close-ends",),
    by=("stopping/a_close_waits_for_no_connection[worker]",),
)
def close_waits_for_connection(damage: Damage) -> None:
    """Closing waits until the client is connected."""

    def broken(close: Function) -> Function:
        async def close_when_ready(worker: Worker, force: bool = False) -> None:
            await worker.connection.ready()
            await close(worker, force)

        return close_when_ready

    damage.around(Worker, "close", broken)


@mutant(
    "worker.close-is-an-error",
    kills=("liveness.close-quiet",),
    by=("stopping/a_close_while_connecting_is_no_error[worker]",),
)
def close_is_an_error(damage: Damage) -> None:
    """A worker that is closed while it connects emits that its connection is closed."""

    def broken(connect: Function) -> Function:
        async def connect_and_complain(worker: Worker) -> bool:
            connected = bool(await connect(worker))
            if not connected:
                worker.emit("error", BullMQError("Connection is closed."))
                damage.witness.note()
            return connected

        return connect_and_complain

    damage.around(Worker, "_is_connected", broken)


@mutant("worker.pause-is-a-flag", kills=("liveness.pause",))
def pause_is_a_flag(damage: Damage) -> None:
    """A pause sets a flag that the loop of the worker does not read."""

    async def set_flag(worker: Worker, _do_not_wait: bool = False) -> None:
        vars(worker)["paused"] = True

    damage.replace(Worker, "isPaused", lambda worker: "paused" in vars(worker))
    damage.replace(Worker, "pause", set_flag)


@mutant("worker.pause-waits-for-poll", kills=("liveness.pause",), by=("stopping/an_idle_worker_pauses_at_once",))
def pause_waits_for_poll(damage: Damage) -> None:
    """Pausing an idle worker waits until its poll of Redis ends."""

    def broken(pause: Function) -> Function:
        async def pause_late(worker: Worker, at_once: bool = False) -> None:
            await worker.rest(POLL_S)
            damage.witness.note()
            await pause(worker, at_once)

        return pause_late

    damage.around(Worker, "pause", broken)


@mutant("worker.reports-fetched-only", kills=("liveness.events",))
def reports_fetched_only(damage: Damage) -> None:
    """A worker emits no `active` for a job that it got by finishing another one."""
    fetched: set[str | None] = set()

    def noted(move_to_active: Function) -> Function:
        async def fetch(fetcher: JobFetcher, token: str) -> Job | None:
            job: Job | None = await move_to_active(fetcher, token)
            fetched.add(job.id if job else None)
            return job

        return fetch

    def broken(emit: Function) -> Function:
        def emit_some(worker: Worker, event: str, *args: Any) -> None:
            if event == "active" and args[0].id not in fetched:
                damage.witness.note()
            else:
                emit(worker, event, *args)

        return emit_some

    damage.around(JobFetcher, "_move_to_active", noted)
    damage.around(Worker, "emit", broken)


@mutant("worker.one-at-a-time", kills=("liveness.concurrency",))
def one_at_a_time(damage: Damage) -> None:
    """`concurrency` has no effect."""
    damage.replace(Worker, "concurrency", property(lambda _worker: 1, lambda _worker, _value: None))


@mutant("worker.nameless-jobs", kills=("interop.plain",))
def nameless_jobs(damage: Damage) -> None:
    """A worker hands its processor jobs without a name."""

    def broken(take: Function) -> Function:
        async def take_nameless(fetcher: JobFetcher, fetched: FetchReply | None, token: str) -> Job | None:
            job: Job | None = await take(fetcher, fetched, token)
            if job is not None:
                job.name = ""
                damage.witness.note()
            return job

        return take_nameless

    damage.around(JobFetcher, "take", broken)


@mutant("worker.keeps-its-end-to-itself", kills=("liveness.tells",))
def keeps_its_end_to_itself(damage: Damage) -> None:
    """A worker emits no event when it is closed."""

    def broken(emit: Function) -> Function:
        def emit_others(worker: Worker, event: str, *args: Any) -> None:
            if event != "closed":
                emit(worker, event, *args)

        return emit_others

    damage.around(Worker, "emit", broken)


@mutant("worker.takes-any-options", kills=("liveness.options-refused", "stalled.limit.negative"))
def takes_any_options(damage: Damage) -> None:
    """A worker does not validate its options."""
    damage.replace(worker_module, "check_options", lambda _opts: None)


@mutant("worker.complains-of-deferred-failures", kills=("liveness.no-errors.deferred",))
def complains_of_deferred_failures(damage: Damage) -> None:
    """A worker that has failed a job for its deferred failure loses it from its books, and reports that as `error`."""

    def broken(fail: Function) -> Function:
        async def fail_and_complain(
            runner: JobRunner, job: Job, error: BaseException, slots: Any, span: Any
        ) -> Job | None:
            fetched: Job | None = await fail(runner, job, error, slots, span)
            if job.deferredFailure:
                damage.witness.note()
                vars(runner)["_worker"].emit("error", KeyError(job.id))
            return fetched

        return fail_and_complain

    damage.around(JobRunner, "_fail", broken)


@mutant("worker.never-says-paused", kills=("liveness.state",))
def never_says_paused(damage: Damage) -> None:
    """A worker that is paused says that it is not."""
    damage.replace(Worker, "isPaused", lambda _worker: False)


@mutant("worker.keeps-what-was-put-off", kills=("liveness.moved-by-processor",))
def keeps_what_was_put_off(damage: Damage) -> None:
    """A job that its processor puts off stays in active, and its worker still lets go of it."""

    def broken(_move_to_delayed: Function) -> Function:
        async def keep(_job: Job, _due_ms: float, _token: str | None = None) -> None:
            damage.witness.note()

        return keep

    damage.around(Job, "moveToDelayed", broken)


def _work_with(damage: Damage, change: Callable[[dict[str, Any]], None]) -> None:
    """A worker works with other options than it was given."""

    def broken(check_options: Function) -> Function:
        def check_and_change(opts: dict[str, Any]) -> None:
            check_options(opts)
            given = dict(opts)
            change(opts)
            if opts != given:
                damage.witness.note()

        return check_and_change

    damage.around(worker_module, "check_options", broken)


@mutant("worker.runs-unasked", kills=("liveness.autorun",))
def runs_unasked(damage: Damage) -> None:
    """A worker always runs at once; `autorun` has no effect."""
    _work_with(damage, lambda opts: opts.update(autorun=True))


@mutant("worker.one-start-too-few", kills=("liveness.started-limit",))
def one_start_too_few(damage: Damage) -> None:
    """The last start that `maxStartedAttempts` allows is taken for one too many."""
    _work_with(damage, lambda opts: opts.update(maxStartedAttempts=(opts.get("maxStartedAttempts") or 1) - 1))


@mutant("worker.checks-unasked", kills=("liveness.skips-check",))
def checks_unasked(damage: Damage) -> None:
    """A worker always checks for stalled jobs; `skipStalledCheck` has no effect."""
    _work_with(damage, lambda opts: opts.update(skipStalledCheck=False))


@mutant("worker.renews-unasked", kills=("liveness.skips-renewal",))
def renews_unasked(damage: Damage) -> None:
    """A worker always renews its locks; `skipLockRenewal` has no effect."""
    _work_with(damage, lambda opts: opts.update(skipLockRenewal=False))


@mutant("client.keeps-connections", kills=("liveness.close-connections",))
def keeps_connections(damage: Damage) -> None:
    """Closing leaves the connections open."""

    def broken(_close: Function) -> Function:
        async def stay_open(_connection: Connection) -> None:
            damage.witness.note()

        return stay_open

    damage.around(Connection, "close", broken)


# Who sees a worker.


@mutant("worker.unseen", kills=("interop.workers-seen",))
def unseen(damage: Damage) -> None:
    """The connection of a worker has no name, so that no getWorkers lists it."""
    damage.replace(Worker, "_connection_name", lambda _worker: None)


@mutant("worker.sees-itself", kills=("interop.workers-seen",))
def sees_itself(damage: Damage) -> None:
    """Only workers without a name are listed: those that a client of this kind starts."""

    def broken(list_workers: Function) -> Function:
        async def list_unnamed(queue: Queue) -> list[dict[str, str]]:
            return [
                worker for worker in await list_workers(queue) if NAMED_WORKER_INFIX not in worker.get("rawname", "")
            ]

        return list_unnamed

    damage.around(Queue, "getWorkers", broken)
