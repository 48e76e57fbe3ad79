"""Fifteen defects, planted into the reference client: what the fuzzer has to find by itself and shrink to a few calls.

The gate's own mutants each break one ledger row; these are the kinds of mistakes that no scenario has to be about.
`python -m tests.fuzz.planted NAME [OPERATION …]` serves the reference with one of them, without those operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from conformance.mutants.damage import Damage
from conformance.mutants.driver import mutant_server
from conformance.mutants.registry import Mutant
from conformance.reference_impl.jobs import options
from conformance.reference_impl.scripts.runner import official_scripts

PLANTED: dict[str, Mutant] = {}


def planted(inflict: Callable[[Damage], None]) -> Callable[[Damage], None]:
    """Note a defect under the name of its function."""
    name = inflict.__name__.replace("_", "-")
    PLANTED[name] = Mutant(name, inflict.__doc__ or "", (), (), (), (), inflict)
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


def _nothing(_damage: Damage) -> None:
    """Break nothing."""


HEALTHY = Mutant("healthy", "Nothing is broken.", (), (), (), (), _nothing)


def main(arguments: Sequence[str]) -> None:
    """Serve until stdin ends."""
    mutant = {**PLANTED, "healthy": HEALTHY}[arguments[0]]
    server = mutant_server(mutant, Damage(mutant.name), official_scripts())
    for name in arguments[1:]:
        del server.ops[name]
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
