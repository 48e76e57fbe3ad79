"""Damages of a queue of `live_store.mjs`, each made by Redis commands, and the findings that must name it.

In the words of a command, `{q}` is `PREFIX:QUEUE:`, `{now}` and `{now_s}` the time in ms and in s, `{hour}` one hour
from now in ms, and `{hourly}` the next time of the schedule of that name (ms).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HOUR_MS = 3_600_000
DUE = 4096
"""A score in `delayed` is a time in ms times this."""

Command = tuple[str, ...]


@dataclass(frozen=True)
class LiveDamage:
    """A damage. `findings`: the causes that are reported about its queue, and no others."""

    name: str
    findings: tuple[str, ...]
    commands: tuple[Command, ...]

    def inflict(self, client: Any, base: str) -> None:
        """Damage one queue; `base`: the beginning of its keys."""
        seconds, _ = client.time()
        words = {"q": base, "now": seconds * 1000, "now_s": seconds, "hour": seconds * 1000 + HOUR_MS}
        words |= {"score": (seconds * 1000 + HOUR_MS) * DUE, "late": (seconds * 1000 - HOUR_MS) * DUE}
        words |= {"long_ago": seconds * 1000 - 2 * HOUR_MS}
        words["hourly"] = int(client.zscore(f"{base}repeat", "hourly"))
        for command in self.commands:
            client.execute_command(*(_filled(word, words) for word in command))


def _filled(word: str, words: dict[str, Any]) -> str:
    for name, value in words.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def _damage(name: str, findings: str, *commands: str) -> LiveDamage:
    return LiveDamage(name, tuple(findings.split()), tuple(tuple(command.split()) for command in commands))


_ENDED = "HSET {q}one finishedOn {now} processedOn {now} ats 1 atm 1"
_AT_REST = ("LREM {q}active 0 busy", "DEL {q}busy {q}busy:lock")
"""Nothing is active."""

DAMAGES = (
    # A job in no container.
    _damage("waiting-job-taken-out", "job-in-no-container", "LREM {q}wait 0 second"),
    _damage("completed-job-taken-out", "job-in-no-container", "ZREM {q}completed done"),
    _damage("failed-job-taken-out", "job-in-no-container", "ZREM {q}failed broken"),
    _damage("delayed-job-taken-out", "job-in-no-container", "ZREM {q}delayed much-later"),
    _damage("prioritized-job-taken-out", "job-in-no-container", "ZREM {q}prioritized urgent"),
    _damage("parent-taken-out", "job-in-no-container", "ZREM {q}waiting-children mother"),
    _damage("active-job-taken-out", "job-in-no-container lock-of-another-state", "LREM {q}active 0 busy"),
    # A job in two.
    _damage("completed-job-waits", "job-in-two-containers", "RPUSH {q}wait done"),
    _damage("completed-and-failed", "job-in-two-containers finish-score", "ZADD {q}failed {hour} done"),
    _damage("waiting-and-active", "job-in-two-containers", "LPUSH {q}active first"),
    _damage("delayed-and-waiting", "job-in-two-containers", "LPUSH {q}wait later"),
    _damage("twice-in-wait", "job-twice-in-a-list", "RPUSH {q}wait second"),
    # Ids without a hash.
    _damage("ghost-in-wait", "id-without-a-hash", "LPUSH {q}wait ghost"),
    _damage("ghost-in-delayed", "id-without-a-hash", "ZADD {q}delayed {score} ghost"),
    _damage("ghost-in-completed", "id-without-a-hash", "ZADD {q}completed {now} ghost"),
    _damage("hash-of-waiting-job-lost", "id-without-a-hash", "DEL {q}third"),
    _damage("hash-of-completed-job-lost", "id-without-a-hash log-without-a-job", "DEL {q}done"),
    _damage("hash-of-active-job-lost", "id-without-a-hash lock-without-a-job", "DEL {q}busy"),
    # Locks.
    _damage("lock-lost", "active-without-a-lock", "DEL {q}busy:lock"),
    _damage("lock-of-nothing", "lock-without-a-job", "SET {q}gone:lock token PX 3600000"),
    _damage("lock-of-completed-job", "lock-of-another-state", "SET {q}done:lock token PX 3600000"),
    _damage("endless-lock", "lock-never-ends", "PERSIST {q}busy:lock"),
    # Keys of jobs that are gone.
    _damage("logs-of-nothing", "log-without-a-job", "RPUSH {q}gone:logs line"),
    _damage("children-of-nothing", "children-without-a-job", "SADD {q}gone:dependencies {q}one"),
    _damage("values-of-nothing", "children-without-a-job", "HSET {q}gone:processed {q}one 1"),
    _damage("deduplication-of-nothing", "deduplication-without-a-job", "SET {q}de:lost gone"),
    _damage("deduplication-of-completed-job", "deduplication-without-a-job", "SET {q}de:again done"),
    _damage("kept-back-for-nothing", "kept-back-without-a-job", "HSET {q}dn:lost name job data {} opts {}"),
    _damage("deduplication-too-short", "deduplication-ends-early", "PEXPIRE {q}de:slow 3600000"),
    # Flows.
    _damage("children-forgotten", "parent-waits-for-nothing", "DEL {q}mother:dependencies"),
    _damage("child-removed", "child-is-gone", "LREM {q}wait 0 one", "DEL {q}one"),
    _damage(
        "child-completed",
        "child-has-ended",
        "LREM {q}wait 0 one",
        "ZADD {q}completed {now} one",
        _ENDED,
        "HSET {q}one returnvalue 1",
    ),
    _damage(
        "child-failed-for-its-parent",
        "child-has-ended",
        "LREM {q}wait 0 one",
        "ZADD {q}failed {now} one",
        _ENDED,
        'HSET {q}one failedReason no opts {"fpof":true,"attempts":1}',
    ),
    _damage("child-counted-twice", "child-in-two-sets", "HSET {q}mother:processed {q}one 1"),
    _damage("another-parent", "parent-unreadable", "HSET {q}one parentKey {q}first"),
    _damage("half-a-parent", "parent-unreadable", "HDEL {q}one parent"),
    # Schedules.
    _damage("record-lost", "schedule-without-a-record", "DEL {q}repeat:hourly"),
    _damage("entry-lost", "schedule-without-an-entry iteration-without-a-schedule", "ZREM {q}repeat hourly"),
    _damage("schedule-lost", "iteration-without-a-schedule", "ZREM {q}repeat nightly", "DEL {q}repeat:nightly"),
    _damage(
        "schedule-in-seconds",
        "schedule-time-unreadable iteration-without-a-schedule",
        "ZADD {q}repeat {now_s} hourly",
    ),
    _damage(
        "iteration-lost",
        "schedule-without-an-iteration",
        "ZREM {q}delayed repeat:hourly:{hourly}",
        "DEL {q}repeat:hourly:{hourly}",
    ),
    _damage(
        "two-iterations",
        "iteration-without-a-schedule",
        "COPY {q}repeat:hourly:{hourly} {q}repeat:hourly:{hour}",
        "ZADD {q}delayed {score} repeat:hourly:{hour}",
    ),
    # Jobs that should run.
    _damage(
        "due-an-hour-ago",
        "job-overdue",
        *_AT_REST,
        "HSET {q}later timestamp {long_ago} delay 3600000",
        "DEL {q}events",
        "ZADD {q}delayed {late} later",
        "ZADD {q}marker {long_ago} 1",
    ),
    _damage("marker-lost", "no-marker", *_AT_REST, "DEL {q}marker"),
    _damage("marker-of-another-kind", "marker-unreadable", "ZADD {q}marker 5 now"),
    _damage("marker-in-the-future", "marker-too-late", "ZADD {q}marker {score} 1"),
    # Limits and settings.
    _damage("endless-limit", "limit-never-ends", "SET {q}limiter 9007199254740991"),
    _damage("endless-stalled-check", "stalled-check-never-ends", "SET {q}stalled-check {now}"),
    _damage("concurrency-zero", "setting-unreadable", "HSET {q}meta concurrency 0"),
    _damage("concurrency-in-words", "setting-unreadable", "HSET {q}meta concurrency many"),
    _damage("rate-in-words", "setting-unreadable", "HSET {q}meta max 10/s duration 1000"),
    _damage("events-in-words", "setting-unreadable", "HSET {q}meta opts.maxLenEvents all"),
    _damage("limit-in-words", "setting-unreadable", "SET {q}limiter full PX 3600000"),
    # Values that other clients cannot read.
    _damage("timestamp-in-seconds", "time-unreadable", "HSET {q}second timestamp {now_s}"),
    _damage("end-in-seconds", "time-unreadable finish-score times-out-of-order", "HSET {q}done finishedOn {now_s}"),
    _damage("score-in-seconds", "finish-score", "ZADD {q}completed {now_s} done"),
    _damage("due-time-in-ms", "due-score marker-too-late", "ZADD {q}delayed {hour} later"),
    _damage("priority-as-score", "priority-score priority-counter-behind", "ZADD {q}prioritized 5 urgent"),
    _damage("data-is-not-json", "json-unreadable", "HSET {q}second data {'n':1}"),
    _damage("options-are-not-json", "json-unreadable", "HSET {q}second opts {'attempts':3}"),
    _damage("result-is-python", "json-unreadable", "HSET {q}done returnvalue None"),
    _damage("delay-in-words", "number-unreadable", "HSET {q}second delay soon"),
    _damage("attempts-in-words", "number-unreadable attempts-exceed-starts", "HSET {q}done ats once"),
    _damage("more-attempts-than-starts", "attempts-exceed-starts", "HSET {q}done atm 7"),
    _damage("active-before-added", "times-out-of-order", "HSET {q}done processedOn {long_ago}"),
    _damage("timestamp-lost", "field-missing", "HDEL {q}second timestamp"),
    _damage("end-lost", "finish-fields", "HDEL {q}done finishedOn"),
    _damage("id-counter-reset", "id-counter-behind", "SET {q}id 1"),
    _damage("id-counter-in-words", "id-counter-behind setting-unreadable", "SET {q}id many"),
    _damage("priority-counter-reset", "priority-counter-behind", "SET {q}pc 0"),
    _damage("added-another-day", "added-at-another-time", "HSET {q}second timestamp {long_ago}"),
    # Pauses of 5.x and 6.x.
    _damage("parked-but-not-paused", "pause-layouts", "LMOVE {q}wait {q}paused LEFT LEFT"),
    _damage("paused-in-the-way-of-6", "pause-layouts", "HSET {q}meta paused 1"),
    _damage(
        "parked-under-6",
        "pause-layouts",
        "HSET {q}meta paused 1 version bullmq:6.7.0",
        "LMOVE {q}wait {q}paused LEFT LEFT",
    ),
    # Keys.
    _damage("job-that-expires", "key-expires", "EXPIRE {q}second 3600"),
    _damage("list-that-expires", "key-expires", "EXPIRE {q}wait 3600"),
    _damage("foreign-key", "key-unknown", "SET {q}mine value"),
    _damage("container-of-another-type", "key-unknown job-in-no-container", "DEL {q}failed", "SET {q}failed none"),
    LiveDamage(
        "events-never-trimmed",
        ("events-never-trimmed",),
        (("EVAL", "for i = 1, 3000 do redis.call('XADD', KEYS[1], '*', 'event', 'waiting', 'jobId', 'first') end",
          "1", "{q}events"), ("HSET", "{q}meta", "opts.maxLenEvents", "100")),
    ),
)  # fmt: skip
"""At least one of each cause that concerns a queue."""
