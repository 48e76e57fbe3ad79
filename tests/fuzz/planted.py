"""Defects planted into the reference client: what the fuzzer has to find by itself and shrink to a few calls.

The gate's own mutants each break one ledger row; these are the kinds of mistakes that no scenario has to be about.
`python -m tests.fuzz.planted NAME [OPERATION …]` serves the reference with one of them, without those operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.mutants.damage import Damage
from conformance.mutants.driver import mutant_server
from conformance.mutants.registry import Mutant
from conformance.reference_impl.jobs import attempts, options
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.add import AddArguments, AddScripts
from conformance.reference_impl.scripts.runner import EvalCommand, official_scripts

PLANTED: dict[str, Mutant] = {}


def planted(inflict: Callable[[Damage], None]) -> Callable[[Damage], None]:
    """Note a defect under the name of its function."""
    name = inflict.__name__.replace("_", "-")
    PLANTED[name] = Mutant(name, inflict.__doc__ or "", (), inflict)
    return inflict


@planted
def wrong_score(damage: Damage) -> None:
    """A job whose priority is changed loses its place among jobs of equal priority."""
    damage.commands(
        "changePriority", 'if command[1] == "ZADD" and on(command, "prioritized") then command[3] = command[3] + 1 end'
    )


@planted
def missing_marker(damage: Damage) -> None:
    """Promoting a job wakes no worker."""
    damage.commands("promote", 'if command[1] == "ZADD" and on(command, "marker") then return 0 end')


@planted
def no_lock_check(damage: Damage) -> None:
    """A job can be finished with any token, and without a lock."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "GET" and on(command, "lock") then return cmsgpack.unpack(ARGV[8])["token"] end',
    )


@planted
def event_without_prev(damage: Damage) -> None:
    """The event `failed` does not say where the job was before."""
    damage.commands("moveToFinished", 'if event(command) == "failed" then drop(command, "prev") end')


@planted
def fifo_broken_at_third(damage: Damage) -> None:
    """The third job that waits stands first in the queue."""
    damage.commands(
        "addStandardJob",
        'if command[1] == "LPUSH" and on(command, "wait") and send("LLEN", command[2]) == 2 '
        'then command[1] = "RPUSH" end',
    )


@planted
def option_dropped(damage: Damage) -> None:
    """The option `stackTraceLimit` is not stored."""

    def around(healthy: Callable[..., Any]) -> Callable[..., Any]:
        def encode(given: Any) -> dict[str, Any]:
            return {name: value for name, value in healthy(given).items() if name != "stackTraceLimit"}

        return encode

    damage.around(options, "encode", around)


@planted
def nan_leaked(damage: Damage) -> None:
    """A delay that is changed to nothing is written as a number that is none."""
    damage.commands(
        "changeDelay",
        'if command[1] == "HSET" and at(command, "delay") and tonumber(command[4]) == 0 then command[4] = "NaN" end',
    )


@planted
def dedup_ttl_ignored(damage: Damage) -> None:
    """A deduplication id stays taken for ever."""
    damage.commands(
        "addStandardJob",
        'if command[1] == "SET" and string.find(command[2], ":de:", 1, true) then drop(command, "PX") end',
    )


@planted
def parent_left_waiting(damage: Damage) -> None:
    """A parent is not released when its last child is done."""
    damage.commands("moveToFinished", 'if command[1] == "SCARD" and on(command, "dependencies") then return 1 end')


@planted
def attempt_uncounted(damage: Damage) -> None:
    """An attempt that is retried at once does not count."""
    damage.commands("retryJob", 'if command[1] == "HINCRBY" and command[3] == "atm" then return 1 end')


@planted
def lifo_lost_while_paused(damage: Damage) -> None:
    """In a paused queue, a job added with `lifo` stands last like any other."""
    damage.commands(
        "addStandardJob", 'if command[1] == "RPUSH" and on(command, "paused") then command[1] = "LPUSH" end'
    )


@planted
def stalled_uncounted(damage: Damage) -> None:
    """A stalled job is recovered, but the recovery is not counted."""
    damage.commands("moveStalledJobsToWait", 'if command[1] == "HINCRBY" and command[3] == "stc" then return 1 end')


@planted
def one_more_kept(damage: Damage) -> None:
    """Of the finished jobs, one more is kept than `removeOnComplete` and `removeOnFail` say."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "ZREVRANGE" then command[3] = command[3] + 1 end '
        'if command[1] == "ZREMRANGEBYRANK" then command[4] = command[4] - 1 end',
    )


@planted
def drain_spares_prioritized(damage: Damage) -> None:
    """Draining leaves the jobs with a priority."""
    damage.commands("drain", 'if command[1] == "ZRANGE" and on(command, "prioritized") then return {} end')


@planted
def iteration_uncounted(damage: Damage) -> None:
    """A scheduler does not count the jobs that it makes."""
    damage.commands("updateJobScheduler", 'if command[1] == "HINCRBY" and command[3] == "ic" then return 1 end')


INT_MAX = 2**31 - 1


def _counter_of_31_bits(damage: Damage, script: str, counter: str, start: int) -> None:
    damage.commands(
        script,
        f'if command[1] == "INCR" and on(command, "{counter}") then local number = send("INCR", command[2]) '
        f'if number > {INT_MAX} then number = {start} send("SET", command[2], number) end return number end',
    )


@planted
def short_ids_of_a_bulk(damage: Damage) -> None:
    """A bulk returns large ids with an exponent, such as `1e+08`."""

    def around(healthy: Callable[..., Any]) -> Callable[..., Any]:
        async def add_jobs(scripts: AddScripts, jobs: Sequence[AddArguments]) -> list[str]:
            ids = await healthy(scripts, jobs)
            return [f"{int(job):g}" if job.isdecimal() and int(job) >= 10**8 else job for job in ids]

        return add_jobs

    damage.around(AddScripts, "add_jobs", around)


@planted
def short_ids_of_urgent_jobs(damage: Damage) -> None:
    """Large ids are shortened among the jobs with a priority, so that workers find no such job."""
    damage.commands(
        "addPrioritizedJob",
        'local id = tonumber(command[#command]) if command[1] == "ZADD" and on(command, "prioritized") and id '
        'and id >= 1e8 then command[#command] = string.format("%.8g", id) end',
    )


@planted
def flow_numbers_start_again(damage: Damage) -> None:
    """In flows, the number after 2147483647 is 1, which another job has."""
    _counter_of_31_bits(damage, "addParentJob", "id", 1)


@planted
def scheduler_numbers_start_again(damage: Damage) -> None:
    """For jobs of schedulers, the number after 2147483647 is 1, which another job has."""
    _counter_of_31_bits(damage, "addJobScheduler", "id", 1)


@planted
def priority_counter_of_31_bits(damage: Damage) -> None:
    """The counter of priorities becomes negative after 2147483647, so that new jobs overtake."""
    _counter_of_31_bits(damage, "addPrioritizedJob", "pc", -(2**31))


@planted
def delay_of_31_bits(damage: Damage) -> None:
    """A delay of more than 24 days is none."""
    damage.commands(
        "addDelayedJob",
        'if command[1] == "ZADD" and on(command, "delayed") then local added = cmsgpack.unpack(ARGV[1])[4] '
        f"if command[3] / 4096 - added > {INT_MAX} then command[3] = added * 4096 end end",
    )


@planted
def changed_delay_of_31_bits(damage: Damage) -> None:
    """A delay that is changed to more than 24 days is cut short."""
    damage.argument("changeDelay", 0, lambda delay: min(float(delay), INT_MAX))


@planted
def late_retries_at_once(damage: Damage) -> None:
    """An exponential back-off overflows at the 32nd attempt, and the job is retried at once."""

    def around(healthy: Callable[..., Any]) -> Callable[..., Any]:
        async def delay_before_retry(
            backoff: Mapping[str, Any] | None, attempt: int, error: BaseException, job: Any, **more: Any
        ) -> float | None:
            overflown = attempt > 31 and (backoff or {}).get("type") == "exponential"
            delay: float | None = 0 if overflown else await healthy(backoff, attempt, error, job, **more)
            return delay

        return delay_before_retry

    damage.around(attempts, "delay_before_retry", around)


@planted
def id_read_as_a_number(damage: Damage) -> None:
    """An id that another language reads as a number, such as `1e9`, becomes that number."""

    def around(healthy: Callable[..., Any]) -> Callable[..., Any]:
        def add_call(scripts: AddScripts, job: AddArguments) -> EvalCommand:
            try:
                number = f"{float(job.job_id or '-'):g}"
            except ValueError:
                number = job.job_id or ""
            command: EvalCommand = healthy(scripts, replace(job, job_id=number))
            return command

        return add_call

    damage.around(AddScripts, "add_call", around)


@planted
def id_is_a_pattern(damage: Damage) -> None:
    """Removing a job with a `*` in its id removes the keys of other jobs as well."""
    damage.commands(
        "removeJob",
        'if command[1] == "DEL" and string.find(command[2], "*", 1, true) then '
        'for _, key in ipairs(send("KEYS", command[2])) do send("DEL", key) end return 1 end',
    )


@planted
def scheduler_id_ends_at_a_colon(damage: Damage) -> None:
    """Of a scheduler's id, the part after its first colon is lost."""

    def around(healthy: Callable[..., Any]) -> Callable[..., Any]:
        async def upsert(queue: Queue, scheduler: str, repeat: Any, template: Any = None) -> Any:
            return await healthy(queue, scheduler.partition(":")[0], repeat, template)

        return upsert

    damage.around(Queue, "upsertJobScheduler", around)


@planted
def deduplication_id_without_braces(damage: Damage) -> None:
    """Deduplication ids lose their braces."""
    damage.commands(
        "add*Job",
        'if string.find(command[2] or "", ":de:", 1, true) then command[2] = string.gsub(command[2], "[{}]", "") end',
    )


@planted
def name_read_as_a_number(damage: Damage) -> None:
    """A job name that looks like a number becomes that number, such as `1e9`."""
    damage.commands(
        "add*Job",
        'local place = command[1] == "HMSET" and at(command, "name") '
        "if place and tonumber(command[place]) then command[place] = tonumber(command[place]) end",
    )


def _nothing(_damage: Damage) -> None:
    """Break nothing."""


HEALTHY = Mutant("healthy", "Nothing is broken.", (), _nothing)


def main(arguments: Sequence[str]) -> None:
    mutant = {**PLANTED, "healthy": HEALTHY}[arguments[0]]
    server = mutant_server(mutant, Damage(mutant.name), official_scripts())
    for name in arguments[1:]:
        del server.ops[name]
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
