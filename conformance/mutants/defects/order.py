"""Scores, order and markers that other clients cannot find the next job by, also in the fetch that ends another job."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl import queue_base
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.move import MoveScripts

_DELAYED = 'command[1] == "ZADD" and on(command, "delayed")'
_MARKER = 'command[1] == "ZADD" and on(command, "marker")'
_PRIORITIZED = 'command[1] == "ZADD" and on(command, "prioritized")'
_FAILING = 'ARGV[5] == "failed"'
"""Lua condition: moveToFinished was called for a failure."""


@mutant("delayed.score-in-ms", kills=("order.delayed.score", "interop.delayed"))
def score_in_ms(damage: Damage) -> None:
    """The score of a delayed job is its due time in ms."""
    damage.commands("addDelayedJob", f"if {_DELAYED} then command[3] = math.floor(command[3] / 4096) end")


@mutant("delayed.factor-1000", kills=("order.delayed.score",))
def factor_1000(damage: Damage) -> None:
    """The due time is multiplied by 1000."""
    damage.commands("addDelayedJob", f"if {_DELAYED} then command[3] = math.floor(command[3] / 4096) * 1000 end")


@mutant("delayed.same-score", kills=("order.delayed.same-ms",))
def same_score(damage: Damage) -> None:
    """Jobs due in the same ms have the same score."""
    damage.commands("addDelayedJob", f"if {_DELAYED} then command[3] = math.floor(command[3] / 4096) * 4096 end")


@mutant("delayed.promoted-backwards", kills=("order.due.promoted",))
def promoted_backwards(damage: Damage) -> None:
    """Of the due jobs, the latest is promoted first."""
    damage.commands(
        "moveToActive",
        'if command[1] == "ZRANGEBYSCORE" then local due, turned = send(unpack(command)), {} '
        "for place = #due, 1, -1 do turned[#turned + 1] = due[place] end return turned end",
    )


@mutant("delayed.promoted-last", kills=("order.due.prioritized",))
def promoted_last(damage: Damage) -> None:
    """A due job with a priority is promoted behind all others."""
    damage.commands("moveToActive", f"if {_PRIORITIZED} then command[3] = 9007199254740991 end")


@mutant("prioritized.uncounted", kills=("order.prioritized.score",))
def uncounted(damage: Damage) -> None:
    """The score of a prioritized job is its priority alone."""
    damage.commands("addPrioritizedJob", 'if command[1] == "INCR" and on(command, "pc") then return 0 end')


@mutant("prioritized.plain-score", kills=("order.prioritized.score",))
def plain_score(damage: Damage) -> None:
    """The score of a prioritized job is its priority, not multiplied."""
    damage.commands("addPrioritizedJob", f"if {_PRIORITIZED} then command[3] = math.floor(command[3] / 4294967296) end")


@mutant("prioritized.counter-kept", kills=("order.prioritized.counter-reset",))
def counter_kept(damage: Damage) -> None:
    """The counter of priorities is kept when no prioritized job is left."""
    damage.commands("moveTo*", 'if command[1] == "DEL" and on(command, "pc") then return 0 end')


@mutant("marker.missing", kills=("order.marker.base",))
def marker_missing(damage: Damage) -> None:
    """Adding a job does not wake a worker."""
    damage.commands("add*Job", f'if {_MARKER} and command[4] == "0" then return 0 end')


@mutant("marker.score-now", kills=("order.marker.base",))
def marker_score_now(damage: Damage) -> None:
    """The base marker has a time as its score."""
    damage.commands(
        "addStandardJob", f'if {_MARKER} and command[4] == "0" then command[3] = cmsgpack.unpack(ARGV[1])[4] end'
    )


@mutant("marker.delay-missing", kills=("order.marker.delayed",))
def delay_marker_missing(damage: Damage) -> None:
    """Adding a delayed job sets no marker with its due time."""
    damage.commands("addDelayedJob", f'if {_MARKER} and command[4] == "1" then return 0 end')


@mutant("marker.delay-as-score", kills=("order.marker.delayed",))
def delay_marker_as_score(damage: Damage) -> None:
    """The delay marker holds the score of the job instead of its time."""
    damage.commands("addDelayedJob", f'if {_MARKER} and command[4] == "1" then command[3] = command[3] * 4096 end')


@mutant("marker.delay-latest", kills=("order.marker.delayed",))
def delay_marker_latest(damage: Damage) -> None:
    """The delay marker holds the time of the job that was added last."""
    damage.commands(
        "addDelayedJob",
        'if event(command) == "delayed" then memory.due = command[at(command, "delay")] end '
        f'if {_MARKER} and command[4] == "1" then '
        "local facts, options = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3]) "
        'command[3] = facts[4] + options["delay"] end',
    )


@mutant("meta.missing", kills=("order.meta",))
def meta_missing(damage: Damage) -> None:
    """A queue does not write who it is."""

    async def nothing(_queue: Queue) -> None:
        return None

    damage.replace(Queue, "_write_meta", nothing)


@mutant("meta.limit-ignored", kills=("order.meta",))
def meta_limit_ignored(damage: Damage) -> None:
    """`meta` always holds the default event limit."""

    def broken(write: Function) -> Function:
        async def write_meta(queue: Queue) -> None:
            await write(queue)
            await queue.connection.at_once("HSET", queue.keys.key("meta"), "opts.maxLenEvents", 10_000)
            damage.witness.note()

        return write_meta

    damage.around(Queue, "_write_meta", broken)


@mutant("queue.cannot-be-made", kills=("order.meta",))
def cannot_be_made(damage: Damage) -> None:
    """A queue cannot be opened, because the client's package lacks a file."""

    def broken(_make: Function) -> Function:
        def fail(_queue: Queue, *_args: object, **_options: object) -> None:
            raise FileNotFoundError("reprocessJob-6.lua")

        return fail

    damage.around(Queue, "__init__", broken)


@mutant("keys.braces", kills=("key.plain",))
def braces(damage: Damage) -> None:
    """Every key puts the queue into braces."""
    damage.replace(queue_base, "QueueKeys", lambda prefix, queue: QueueKeys(prefix, f"{{{queue}}}"))


@mutant("keys.other-types", kills=("interop.same-state",))
def other_types(damage: Damage) -> None:
    """Waiting jobs are in a sorted set `waiting`, and active ones in a set."""
    damage.commands(
        "*",
        'if string.sub(command[1], 2) == "PUSH" and on(command, "wait") then '
        'local waiting = command[2] .. "ing" return send("ZADD", waiting, send("ZCARD", waiting), command[3]) end '
        'if command[1] == "RPOPLPUSH" and on(command, "wait") then '
        'local first = send("ZPOPMIN", command[2] .. "ing")[1] '
        'if first then send("SADD", command[3], first) end return first or false end '
        'if command[1] == "LREM" and on(command, "active") then return send("SREM", command[2], command[4]) end',
    )


@mutant("keys.own-index", kills=("interop.same-state",), warns=("order.no-other-keys",))
def own_index(damage: Damage) -> None:
    """The client keeps an index of its own in Redis."""

    def broken(add: Function) -> Function:
        async def add_and_index(queue: Queue, *args: object) -> object:
            job = await add(queue, *args)
            await queue.connection.command("SADD", queue.keys.key("index"), job.id)
            damage.witness.note()
            return job

        return add_and_index

    damage.around(Queue, "add", broken)


@mutant("fetch-next.no-priority", kills=("fetch-next.prioritized",))
def no_priority(damage: Damage) -> None:
    """Finishing overlooks prioritized jobs."""
    damage.commands("moveToFinished", 'if command[1] == "ZPOPMIN" then return {} end')


@mutant("fetch-next.no-priority-after-failure", kills=("fetch-next.prioritized",))
def no_priority_after_failure(damage: Damage) -> None:
    """Failing overlooks prioritized jobs."""
    damage.commands("moveToFinished", f'if command[1] == "ZPOPMIN" and {_FAILING} then return {{}} end')


@mutant("fetch-next.no-promotion", kills=("fetch-next.promotes",))
def no_promotion(damage: Damage) -> None:
    """Finishing promotes no delayed job."""
    damage.commands("moveToFinished", 'if command[1] == "ZRANGEBYSCORE" then return {} end')


@mutant("fetch-next.no-promotion-after-failure", kills=("fetch-next.promotes",))
def no_promotion_after_failure(damage: Damage) -> None:
    """Failing promotes no delayed job."""
    damage.commands("moveToFinished", f'if command[1] == "ZRANGEBYSCORE" and {_FAILING} then return {{}} end')


@mutant("fetch-next.retry-promotes-nothing", kills=("fetch-next.retry-promotes",))
def retry_promotes_nothing(damage: Damage) -> None:
    """Retrying promotes no delayed job."""
    damage.commands("retryJob", 'if command[1] == "ZRANGEBYSCORE" then return {} end')


@mutant("fetch-next.unsigned", kills=("fetch-next.signs",))
def unsigned(damage: Damage) -> None:
    """A named worker does not sign the jobs that it got by finishing another."""
    _edit_finish(damage, name=None)


@mutant("fetch-next.short-lock", kills=("fetch-next.lock-duration",))
def short_lock(damage: Damage) -> None:
    """The lock of a job that was got by finishing another lives for a second."""
    _edit_finish(damage, lockDuration=1000)


def _edit_finish(damage: Damage, **options: Any) -> None:
    damage.around(
        MoveScripts,
        "_finish_options",
        lambda healthy: lambda scripts, state, job: {**healthy(scripts, state, job), **options},
    )


@mutant(
    "delayed.put-off-same-score",
    kills=("order.delayed.same-ms",),
    by=("order/jobs_put_off_to_the_same_ms_keep_their_order",),
)
def put_off_same_score(damage: Damage) -> None:
    """Jobs that their workers put off to the same ms have the same score."""
    damage.commands("moveToDelayed", f"if {_DELAYED} then command[3] = math.floor(command[3] / 4096) * 4096 end")


@mutant("meta.never-left-alone", kills=("order.meta",), by=("order/a_queue_may_leave_the_settings_alone",))
def never_left_alone(damage: Damage) -> None:
    """Every queue writes its settings, even if its user asks it not to."""

    def broken(opening: Function) -> Function:
        def opening_of(queue: Queue) -> Any:
            if queue.opts.get("skipMetasUpdate"):
                damage.witness.note()
                vars(queue)["_opts"]["skipMetasUpdate"] = False
            return opening(queue)

        return opening_of

    damage.around(Queue, "_opening", broken)
