"""Defects of running jobs: the outcome of a processor, and the outcome that reaches Redis."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.errors import RATE_LIMIT_MESSAGE, UnrecoverableError
from conformance.reference_impl.jobs import attempts
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.telemetry.tracing import TracedBlock
from conformance.reference_impl.workers.fetching import JobFetcher, ScheduleContinuation
from conformance.reference_impl.workers.job_runner import JobRunner, JobSlots
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.worker import Worker

KEPT_BYTES = 400_000
DROPS_FOR_S = 0.2


@chaos_mutant("finish.before-run", kills="outcomes")
def finished_before_run(damage: Damage) -> None:
    """A job without further attempts is completed first, and processed afterwards."""

    def broken(run: Function) -> Function:
        async def complete_and_run(runner: JobRunner, job: Job, slots: JobSlots, span: TracedBlock) -> Any:
            if job.opts.get("attempts"):
                return await run(runner, job, slots, span)
            complete, call = vars(JobRunner)["_complete"], vars(JobRunner)["_call"]
            fetched = await complete(runner, job, {"token": job.token}, slots, span)
            with suppress(Exception):
                await call(runner, job)
            return fetched

        return complete_and_run

    damage.around(JobRunner, "_run", broken)


@chaos_mutant("failure.completed", kills="outcomes")
def failure_completed(damage: Damage) -> None:
    """If a processor throws, its job is completed without a value."""

    def broken(fail: Function) -> Function:
        async def complete(runner: JobRunner, job: Job, error: Exception, slots: JobSlots, span: TracedBlock) -> Any:
            if str(error) != "as ordered" or str(error) == RATE_LIMIT_MESSAGE:
                return await fail(runner, job, error, slots, span)
            return await vars(JobRunner)["_complete"](runner, job, None, slots, span)

        return complete

    damage.around(JobRunner, "_fail", broken)


@chaos_mutant("retries.given-up", kills="outcomes", under="redis.client-kill")
def given_up(damage: Damage) -> None:
    """After a reconnect a failed attempt is the last one, however many the job has left."""
    reconnections = Reconnections(damage)

    def broken(fail: Function) -> Function:
        async def fail_permanently(job: Job, error: BaseException, token: str, *, fetch_next: bool) -> Any:
            last = UnrecoverableError(str(error)) if reconnections.happened else error
            return await fail(job, last, token, fetch_next=fetch_next)

        return fail_permanently

    damage.around(attempts, "fail_attempt", broken)


@chaos_mutant("backoff.forgotten", kills="timing")
def backoff_forgotten(damage: Damage) -> None:
    """A failed attempt is retried at once, without the back-off of the job."""

    async def at_once(
        _backoff: Any, _attempt: int, _error: BaseException, _job: Any, *, strategy: Any = None, chance: Any = None
    ) -> float:
        del strategy, chance
        return 0

    damage.replace(attempts, "delay_before_retry", at_once)


@chaos_mutant("outcome.by-id", kills="tokens", under="redis.flushall")
def outcome_by_id(damage: Damage) -> None:
    """A worker identifies a running job by its id: after a loss, an old job ends with the token of the new one."""
    tokens: dict[tuple[str, str], str] = {}

    def remembering(call: Function) -> Function:
        async def remember_and_call(runner: JobRunner, job: Job) -> Any:
            tokens[job.owner.keys.base, job.known_id] = job.token or ""
            return await call(runner, job)

        return remember_and_call

    def mistaking(finish: Function) -> Function:
        async def finish_with_newest(scripts: MoveScripts, arguments: Any) -> Any:
            place = vars(scripts)["_owner"].keys.base, arguments.job_id
            newest = tokens.get(place, arguments.token)
            return await finish(scripts, type(arguments)(**{**vars(arguments), "token": newest}))

        return finish_with_newest

    damage.around(JobRunner, "_call", remembering)
    damage.around(MoveScripts, "move_to_finished", mistaking)


@chaos_mutant("concurrency.doubled", kills="worker-concurrency", under="redis.client-kill")
def concurrency_doubled(damage: Damage) -> None:
    """A worker that has reconnected runs twice as many jobs at a time as configured."""
    reconnections = Reconnections(damage)
    doubled: set[int] = set()

    def broken(may_fetch: Function) -> Function:
        def may_fetch_double(loop: WorkerLoop) -> bool:
            worker: Worker = vars(loop)["_worker"]
            if reconnections.happened and id(worker) not in doubled:
                doubled.add(id(worker))
                worker.concurrency *= 2
            return bool(may_fetch(loop))

        return may_fetch_double

    damage.around(WorkerLoop, "_may_fetch", broken)


@chaos_mutant("loop.ends-on-error", kills="recovery", under="redis.oom")
def loop_ends_on_error(damage: Damage) -> None:
    """The first error reply of Redis permanently and silently ends the worker's loop."""

    def broken(persist: Function) -> Function:
        async def persist_or_rest(worker: Worker, act: Function) -> Any:
            try:
                return await persist(worker, act)
            except ResponseError:
                await worker.lifecycle.close_called.wait()
                raise

        return persist_or_rest

    damage.around(Worker, "persist", broken)


@chaos_mutant("schedule.ends", kills="schedules", under="redis.client-kill")
def schedule_ends(damage: Damage) -> None:
    """A worker that has reconnected adds no next iteration of schedulers."""
    reconnections = Reconnections(damage)

    def broken(continue_from: Function) -> Function:
        async def end(continuation: ScheduleContinuation, job: Job) -> bool:
            return True if reconnections.happened else bool(await continue_from(continuation, job))

        return end

    damage.around(ScheduleContinuation, "continue_from", broken)


@chaos_mutant("memory.grows", kills="memory")
def memory_grows(damage: Damage) -> None:
    """A worker leaks memory with every job that it has processed."""
    kept: list[bytes] = []

    def broken(call: Function) -> Function:
        async def call_and_keep(runner: JobRunner, job: Job) -> Any:
            kept.append(b"x" * KEPT_BYTES)
            return await call(runner, job)

        return call_and_keep

    damage.around(JobRunner, "_call", broken)


@chaos_mutant("flow.no-grandparent", kills="parents")
def no_grandparent(damage: Damage) -> None:
    """The end of a job that has children itself does not reach its parent."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "SREM" and on(command, "dependencies") and send("EXISTS", KEYS[12] .. ":processed") == 1'
        " then return 0 end",
    )


@chaos_mutant("fetch.dropped", kills="duplicate-runs", under="redis.client-kill")
def fetch_dropped(damage: Damage) -> None:
    """A worker drops the jobs that it fetches within a fifth of a second after a reconnect."""
    reconnections = Reconnections(damage)

    def broken(take: Function) -> Function:
        async def take_or_drop(fetcher: JobFetcher, fetched: Any, token: str) -> Any:
            job = await take(fetcher, fetched, token)
            return None if reconnections.ago_s < DROPS_FOR_S else job

        return take_or_drop

    damage.around(JobFetcher, "take", broken)


@chaos_mutant("token.one-per-worker", kills="tokens")
def one_token(damage: Damage) -> None:
    """A worker claims all its jobs with the same token: after a stall, an old run can finish a newer one."""

    def broken(fetch: Function) -> Function:
        async def fetch_with_one(fetcher: JobFetcher, token: str, *, block: bool) -> Any:
            return await fetch(fetcher, token.rpartition(":")[0] + ":0", block=block)

        return fetch_with_one

    damage.around(JobFetcher, "fetch", broken)
