"""Telling other clients wrongly, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import queue_events
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents, QueueEventsProducer
from conformance.reference_impl.scripts.move import MoveScripts


@mutant("event.added-nameless", kills=("event.added",))
def added_nameless(damage: Damage) -> None:
    """Event `added` lacks the name."""
    damage.commands("add*Job", 'if event(command) == "added" then drop(command, "name") end')


@mutant("event.added-missing", kills=("event.added",))
def added_missing(damage: Damage) -> None:
    """There is no event `added`."""
    damage.commands("add*Job", 'if event(command) == "added" then return "0-0" end')


@mutant("event.added-late", kills=("event.added", "event.order"), by=("add/a_plain_job_enters_wait_at_the_left",))
def added_late(damage: Damage) -> None:
    """Event `waiting` comes before `added`."""
    damage.commands(
        "addStandardJob",
        'if event(command) == "added" then memory.added = command return "0-0" end '
        'if event(command) == "waiting" then local id = send(unpack(command)) send(unpack(memory.added)) return id end',
    )


@mutant("event.waiting-no-prev", kills=("event.waiting",))
def waiting_no_prev(damage: Damage) -> None:
    """Event `waiting` lacks the state that the job comes from."""
    damage.commands("*", 'if event(command) == "waiting" then drop(command, "prev") end')


@mutant("event.waiting-missing", kills=("event.waiting",))
def waiting_missing(damage: Damage) -> None:
    """Promoting leaves no event."""
    damage.commands("promote", 'if event(command) == "waiting" then return "0-0" end')


@mutant("event.delayed-relative", kills=("event.delayed",))
def delayed_relative(damage: Damage) -> None:
    """Event `delayed` holds the delay instead of the due time."""
    damage.commands(
        "addDelayedJob",
        'if event(command) == "delayed" then change(command, "delay", cmsgpack.unpack(ARGV[3])["delay"]) end',
    )


@mutant("event.active-prev", kills=("event.active",))
def active_prev(damage: Damage) -> None:
    """Event `active` names the list instead of the state that the job comes from."""
    damage.commands("moveTo*", 'if event(command) == "active" then change(command, "prev", "wait") end')


@mutant("event.completed-no-result", kills=("event.completed",))
def completed_no_result(damage: Damage) -> None:
    """Event `completed` lacks the result."""
    damage.commands("moveToFinished", 'if event(command) == "completed" then drop(command, "returnvalue") end')


@mutant(
    "event.completed-twice",
    kills=("event.completed", "interop.shared-work"),
    by=("lifecycle/completing_moves_a_job_to_completed",),
)
def completed_twice(damage: Damage) -> None:
    """Event `completed` is there twice."""
    damage.commands("moveToFinished", 'if event(command) == "completed" then send(unpack(command)) end')


@mutant("event.failed-always", kills=("event.failed", "event.order"), by=("retry/a_failed_attempt_waits_again",))
def failed_always(damage: Damage) -> None:
    """A failed attempt that is retried leaves event `failed` as well."""
    damage.commands(
        "retryJob",
        'if event(command) == "waiting" then send("XADD", command[2], "*", "event", "failed", "jobId", ARGV[4], '
        '"failedReason", "", "prev", "active") end',
    )


@mutant("event.failed-no-reason", kills=("event.failed",))
def failed_no_reason(damage: Damage) -> None:
    """Event `failed` lacks the reason."""
    damage.commands("moveToFinished", 'if event(command) == "failed" then drop(command, "failedReason") end')


@mutant("event.exhausted-missing", kills=("event.retries-exhausted",), by=("retry/the_last_attempt_is_final",))
def exhausted_missing(damage: Damage) -> None:
    """There is no event `retries-exhausted`."""
    damage.commands("moveToFinished", 'if event(command) == "retries-exhausted" then return "0-0" end')


@mutant(
    "event.exhausted-always",
    kills=("event.retries-exhausted",),
    by=("retry/an_unrecoverable_error_is_final",),
)
def exhausted_always(damage: Damage) -> None:
    """An unrecoverable failure counts as exhausted retries."""
    damage.around(
        MoveScripts,
        "_finish_options",
        lambda healthy: lambda scripts, state, job: {**healthy(scripts, state, job), "attempts": 0},
    )


@mutant("event.drained-missing", kills=("event.drained",))
def drained_missing(damage: Damage) -> None:
    """There is no event `drained`."""
    damage.commands("moveToFinished", 'if event(command) == "drained" then return "0-0" end')


@mutant("event.drained-early", kills=("event.drained",))
def drained_early(damage: Damage) -> None:
    """Every finished job leaves event `drained`."""
    damage.commands(
        "moveToFinished", 'if event(command) == "active" then send("XADD", command[2], "*", "event", "drained") end'
    )


@mutant("event.progress-field", kills=("event.progress",))
def progress_field(damage: Damage) -> None:
    """Event `progress` holds the value under another name."""
    damage.commands(
        "updateProgress", 'if event(command) == "progress" then command[at(command, "data") - 1] = "progress" end'
    )


@mutant("event.removed-no-prev", kills=("event.removed",))
def removed_no_prev(damage: Damage) -> None:
    """Event `removed` lacks the container of the job."""
    damage.commands("removeJob", 'if event(command) == "removed" then drop(command, "prev") end')


@mutant("event.resumed-missing", kills=("event.paused",))
def resumed_missing(damage: Damage) -> None:
    """Resuming leaves no event."""
    damage.commands("pause", 'if event(command) == "resumed" then return "0-0" end')


@mutant("event.finish-order", kills=("event.order",), by=("lifecycle/completing_can_claim_the_next_job",))
def finish_order(damage: Damage) -> None:
    """The next job's event `active` comes before the event that the last one completed."""
    damage.commands(
        "moveToFinished",
        'if event(command) == "completed" and ARGV[6] == "1" then memory.held = command return "0-0" end '
        'if memory.held and (event(command) == "active" or event(command) == "drained") then '
        "local id = send(unpack(command)) send(unpack(memory.held)) memory.held = nil return id end",
    )


@mutant("event.reader-raw", kills=("event.reader", "interop.events"))
def reader_raw(damage: Damage) -> None:
    """The event reader hands out JSON texts instead of values."""
    damage.replace(queue_events, "_JSON_FIELDS", {})


@mutant("event.reader-replays", kills=("event.reader",))
def reader_replays(damage: Damage) -> None:
    """The event reader always starts with the oldest entry."""

    def broken(start: Function) -> Function:
        async def find_start(reader: QueueEvents) -> None:
            if vars(reader)["_last_id"] is None:
                vars(reader)["_last_id"] = "0-0"
                damage.witness.note()
            await start(reader)

        return find_start

    damage.around(QueueEvents, "_find_start", broken)


@mutant(
    "event.reader-stops-when-quiet",
    kills=("event.reader",),
    by=("events/a_reader_that_blocks_shortly_misses_nothing",),
)
def reader_stops_when_quiet(damage: Damage) -> None:
    """The event reader ends with the first read that brings nothing."""

    def broken(read: Function) -> Function:
        async def read_once(reader: QueueEvents) -> None:
            before = vars(reader)["_last_id"]
            await read(reader)
            if vars(reader)["_last_id"] == before:
                damage.witness.note()
                await asyncio.Event().wait()

        return read_once

    damage.around(QueueEvents, "_read", broken)


@mutant("event.published-empty", kills=("event.published",))
def published_empty(damage: Damage) -> None:
    """An event of the user has only its name, and none of its fields."""

    def broken(publish: Function) -> Function:
        async def publish_empty(producer: QueueEventsProducer, event: dict[str, Any], most: int = 1000) -> None:
            damage.witness.note()
            await publish(producer, {"eventName": event["eventName"]}, most)

        return publish_empty

    damage.around(QueueEventsProducer, "publishEvent", broken)


@mutant("event.progress-no-json", kills=("event.readable-by-node",))
def progress_no_json(damage: Damage) -> None:
    """Event `progress` holds text that is not JSON, on which Node's reader breaks."""
    damage.commands(
        "updateProgress", 'if event(command) == "progress" then change(command, "data", "{percent = 10}") end'
    )


@mutant("queue.removes-in-silence", kills=("event.queue",))
def removes_in_silence(damage: Damage) -> None:
    """A queue emits nothing when it has removed a job."""

    def broken(emit: Function) -> Function:
        def emit_others(queue: Queue, event: str, *arguments: Any) -> None:
            if event == "removed":
                damage.witness.note()
            else:
                emit(queue, event, *arguments)

        return emit_others

    damage.around(Queue, "emit", broken)


@mutant("event.untrimmed", kills=("event.trimmed",))
def untrimmed(damage: Damage) -> None:
    """The event stream is never trimmed."""
    damage.commands(
        "*",
        'if command[1] == "XTRIM" then return 0 end '
        'if event(command) and command[3] == "MAXLEN" then for _ = 1, 3 do table.remove(command, 3) end end',
    )


@mutant("event.retries-untrimmed", kills=("event.trimmed",), by=("events/retries_trim_the_stream[0]",))
def retries_untrimmed(damage: Damage) -> None:
    """A job that is retried at once adds to the event stream without trimming it."""
    _add_without_trimming(damage, "retryJob")


@mutant("event.later-retries-untrimmed", kills=("event.trimmed",), by=("events/retries_trim_the_stream[60000]",))
def later_retries_untrimmed(damage: Damage) -> None:
    """A job that is put off for a retry adds to the event stream without trimming it."""
    _add_without_trimming(damage, "moveToDelayed")


def _add_without_trimming(damage: Damage, script: str) -> None:
    damage.commands(
        script,
        'if command[1] == "XTRIM" then return 0 end '
        'if event(command) and command[3] == "MAXLEN" then for _ = 1, 3 do table.remove(command, 3) end end',
    )


@mutant("event.limit-ignored", kills=("event.trimmed",))
def limit_ignored(damage: Damage) -> None:
    """The event stream is always trimmed to the default limit, and the one in `meta` is ignored."""
    damage.commands("*", 'if command[1] == "HGET" and command[3] == "opts.maxLenEvents" then return "10000" end')


@mutant("event.timed", kills=("event.no-common-fields",), by=("add/a_plain_job_enters_wait_at_the_left",))
def timed(damage: Damage) -> None:
    """Every event has its time in a separate field."""
    damage.commands("*", 'if event(command) then command[#command + 1] = "timestamp" command[#command + 1] = "1" end')
