"""The table of what `check` reports: the name of each cause, what is wrong, why it happens, and how it is repaired.

A cause belongs to a check (`InvariantCheck.name`); checks that find several things have several, in the order in which
they are tried. Data only: a new check gets its row here, and its damage in `tests/reports/live/damages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Level = Literal["damage", "warning"]
"""`damage`: a user is or will be hurt. `warning`: a risk, or something odd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageCause:
    """A named cause of findings.

    `place`, `says`: which findings of the check it has: those with this place, and with this text in the message. Empty
    for all others. `what`: the finding in words. `why`: the usual reason. `repair`: calls of BullMQ, or commands of
    Redis, that repair it, with `{base}` (`PREFIX:QUEUE:`), `{queue}`, `{job}` (what follows the queue in the key),
    `{key}` (the whole key) and `{other}` (the other job's key); they are printed and never run.
    """

    name: str
    check: str
    place: str = ""
    says: str = ""
    level: Level = "damage"
    what: str
    why: str
    repair: tuple[str, ...]

    def fits(self, check: str, place: str, message: str) -> bool:
        """Whether a finding has this cause."""
        return check == self.check and self.place in ("", place) and self.says in message


_PUT_BACK = "LPUSH {base}wait {job}   (then ZADD {base}marker 0 0)"
_REMOVE_JOB = "queue.remove('{job}')   (loses the job)"
_CORRECT = "HSET {key} FIELD VALUE   (with the value that the client meant)"
_RELEASE = "if no child is left: ZREM {base}waiting-children {job}, LPUSH {base}wait {job}, ZADD {base}marker 0 0"
_TWO_STEPS = "keys were changed by single commands instead of BullMQ's scripts"
_DELETED = "the job was deleted without its other keys (DEL, a clean-up script, eviction, or removal by another client)"
_FOREIGN_FORMAT = "a client writes another format than Node.js"

CAUSES: tuple[DamageCause, ...] = (
    DamageCause(
        name="job-in-no-container",
        check="one-state",
        says="in no container",
        what="a job that no list or sorted set holds: it will never run, and no getter shows it",
        why=f"a client died between taking the job out and putting it in, or {_TWO_STEPS}",
        repair=(_PUT_BACK, _REMOVE_JOB),
    ),
    DamageCause(
        name="job-in-two-containers",
        check="one-state",
        what="a job in two containers: it may run twice, and getState returns only one of them",
        why=_TWO_STEPS,
        repair=("LREM {base}wait 0 {job}   (or ZREM, in the container where it is wrong)",),
    ),
    DamageCause(
        name="job-twice-in-a-list",
        check="no-duplicates",
        what="an id twice in a list: the job runs twice",
        why="a client retried a push whose reply was lost",
        repair=("LREM {base}wait 1 {job}",),
    ),
    DamageCause(
        name="id-without-a-hash",
        check="no-ghosts",
        what="an id in a container without a job: a worker runs a job without name and data",
        why="the hash was deleted or evicted, or the client pushed the id and never stored the job",
        repair=("LREM {base}wait 0 {job}   (or ZREM, in the container that holds it)",),
    ),
    DamageCause(
        name="active-without-a-lock",
        check="active-locks",
        what="an active job that no worker holds, and no worker looks for stalled jobs: it stays active forever",
        why="its worker died, and no worker with a stalled check is running (skipStalledCheck, or none at all)",
        repair=("start a Worker for the queue: its stalled check moves the job back after one or two intervals",),
    ),
    DamageCause(
        name="lock-never-ends",
        check="locks",
        place="lock.ttl",
        what="a lock without expiry: if its worker dies, the job is never recovered",
        why="the client set the lock without PX, or SET without KEEPTTL replaced it",
        repair=("PEXPIRE {base}{job}:lock 30000",),
    ),
    DamageCause(
        name="lock-without-a-job",
        check="locks",
        says="no such job",
        what="a lock whose job does not exist",
        why=_DELETED,
        repair=("DEL {base}{job}:lock",),
    ),
    DamageCause(
        name="lock-of-another-state",
        check="locks",
        what="a lock of a job that is not active: the job cannot be removed or moved while it lasts",
        why="the client finished or moved the job and kept the lock",
        repair=("DEL {base}{job}:lock",),
    ),
    DamageCause(
        name="log-without-a-job",
        check="owned-keys",
        place="log",
        what="logs of a job that does not exist: they are never deleted",
        why=_DELETED,
        repair=("DEL {base}{job}:logs",),
    ),
    DamageCause(
        name="children-without-a-job",
        check="owned-keys",
        what="children of a parent that does not exist",
        why=_DELETED,
        repair=("DEL {base}{job}:dependencies {base}{job}:processed {base}{job}:failed {base}{job}:unsuccessful",),
    ),
    DamageCause(
        name="deduplication-without-a-job",
        check="deduplication",
        what="a deduplication key without expiry whose job is gone or has ended: new jobs with this id are dropped",
        why="the client ended or deleted the job without deleting the key",
        repair=("queue.removeDeduplicationKey(ID)", "DEL {key}"),
    ),
    DamageCause(
        name="deduplication-ends-early",
        check="deduplication-ttl",
        what="a deduplication key that ends before the time its job asked for: duplicates are added too soon",
        why="the client sets the time to live in seconds, or restarts it with another value",
        repair=("PEXPIRE {key} MS",),
    ),
    DamageCause(
        name="kept-back-without-a-job",
        check="kept-back",
        what="a job that is kept back until the job of its id ends, but there is no such job: it never runs",
        why="the active job was deleted, or ended by a client older than 5.72",
        repair=("HGETALL {key}   (add the job again from these fields)", "DEL {key}"),
    ),
    DamageCause(
        name="child-is-gone",
        check="pending-children",
        says="does not exist",
        what="a parent that waits for a child that does not exist: it waits forever",
        why=f"the child was deleted without telling the parent; {_TWO_STEPS}",
        repair=("SREM {base}{job}:dependencies {other}", _RELEASE),
    ),
    DamageCause(
        name="child-has-ended",
        check="pending-children",
        what="a parent that waits for a child that has completed: it waits forever",
        why="the client finished the child without its parent",
        repair=("SREM {base}{job}:dependencies {other}", "HSET {base}{job}:processed {other} RETURNVALUE"),
    ),
    DamageCause(
        name="child-has-ended",
        check="ended-children",
        what="a parent that waits for a child that failed, although an option of the child ends this wait",
        why="the client ignores failParentOnFailure, or an option like it",
        repair=("SREM {base}{job}:dependencies {other}", "HSET {base}{job}:failed {other} REASON"),
    ),
    DamageCause(
        name="parent-waits-for-nothing",
        check="waits-for-something",
        what="a parent in waiting-children without a pending child: it waits forever",
        why="the client that ended the last child did not release the parent",
        repair=("ZREM {base}waiting-children {job}", _PUT_BACK),
    ),
    DamageCause(
        name="child-in-two-sets",
        check="one-dependency-kind",
        what="a child that is both pending and ended for its parent",
        why=_TWO_STEPS,
        repair=("SREM {base}{job}:dependencies {other}   (if it has ended)",),
    ),
    DamageCause(
        name="parent-unreadable",
        check="parent-fields",
        what="the fields `parent` and `parentKey` of a child disagree: some clients release another parent, or none",
        why=_FOREIGN_FORMAT,
        repair=('HSET {key} parentKey PREFIX:QUEUE:ID parent \'{{"id":ID,"queueKey":"PREFIX:QUEUE"}}\'',),
    ),
    DamageCause(
        name="schedule-without-a-record",
        check="schedulers",
        place="scheduler.record",
        what="an entry of `repeat` without a record: no further iteration is made",
        why="the record was deleted or evicted",
        repair=("queue.upsertJobScheduler(ID, …)   (with its options)",),
    ),
    DamageCause(
        name="schedule-without-an-entry",
        check="schedulers",
        says="no entry",
        what="the record of a schedule without an entry in `repeat`: no further iteration is made",
        why="removed halfway, or by another client",
        repair=("queue.upsertJobScheduler(ID, …)", "DEL {key}   (if it was removed on purpose)"),
    ),
    DamageCause(
        name="schedule-time-unreadable",
        check="schedulers",
        what="the next time of a schedule is not in Unix ms",
        why="a client wrote seconds, or a date",
        repair=("queue.upsertJobScheduler(ID, …)",),
    ),
    DamageCause(
        name="schedule-without-an-iteration",
        check="next-iterations",
        what="a schedule whose next iteration does not exist: it has stopped",
        why="a worker took the last iteration and did not make the next one, or the job was deleted or evicted",
        repair=("queue.upsertJobScheduler(ID, …)",),
    ),
    DamageCause(
        name="iteration-without-a-schedule",
        check="schedules-of-iterations",
        what="a delayed iteration that is not the next one of its schedule: it runs although it should not",
        why="a client removed or changed the schedule without its pending job",
        repair=("ZREM {base}delayed {job}", "DEL {key}"),
    ),
    DamageCause(
        name="job-overdue",
        check="overdue",
        what="a delayed job that should have run: no worker moves it to wait",
        why="no worker runs for the queue, or its workers are connected and deaf",
        repair=("start a Worker for the queue, or restart its workers", "job.promote()"),
    ),
    DamageCause(
        name="no-marker",
        check="base-marker",
        what="jobs wait without a marker: idle workers notice them only when they poll (drainDelay)",
        why="a client adds jobs without the marker, or it was evicted",
        repair=("ZADD {base}marker 0 0",),
    ),
    DamageCause(
        name="marker-too-late",
        check="delay-marker",
        what="the marker is later than the first delayed job: that job starts late",
        why="a client adds delayed jobs without the marker, or with another unit",
        repair=("ZREM {base}marker 1",),
    ),
    DamageCause(
        name="marker-unreadable",
        check="marker-members",
        what="a member or a score of `marker` that other clients do not know",
        why=_FOREIGN_FORMAT,
        repair=("ZREM {base}marker MEMBER",),
    ),
    DamageCause(
        name="limit-never-ends",
        check="throttles",
        place="limiter.ttl",
        what="a rate limit without expiry: no worker takes a job any more",
        why="the key was set without PX, or INCR made it after it had expired",
        repair=("queue.removeRateLimitKey()", "DEL {base}limiter"),
    ),
    DamageCause(
        name="stalled-check-never-ends",
        check="throttles",
        what="the throttle of the stalled check without expiry: stalled jobs are never found",
        why="the key was set without PX",
        repair=("DEL {base}stalled-check",),
    ),
    DamageCause(
        name="setting-unreadable",
        check="settings",
        what="a setting or a counter that is not a number: scripts fail, or no job is taken",
        why="it was set by hand, or by a client without a check",
        repair=("queue.setGlobalConcurrency(N), queue.removeGlobalConcurrency(), queue.setGlobalRateLimit(MAX, MS)",),
    ),
    DamageCause(
        name="time-unreadable",
        check="times",
        what="a time of a job that is not in Unix ms",
        why="a client wrote seconds, fractions or a date",
        repair=(_CORRECT,),
    ),
    DamageCause(
        name="times-out-of-order",
        check="times-in-order",
        what="a job that ended before it started, or started before it was added",
        why="the clocks of two machines differ, or a client wrote another unit",
        repair=("correct the clock of the machine (NTP)",),
    ),
    DamageCause(
        name="added-at-another-time",
        check="added-in-time",
        what="the timestamp of a job is not the time at which it was added",
        why="the clock of the producer is wrong by more than a minute",
        repair=("correct the clock of the machine (NTP)",),
    ),
    DamageCause(
        name="number-unreadable",
        check="numbers",
        what="delay, priority or a counter of a job is not a number",
        why=_FOREIGN_FORMAT,
        repair=(_CORRECT,),
    ),
    DamageCause(
        name="attempts-exceed-starts",
        check="attempts",
        what="a job with more attempts made than started",
        why="two workers ended the same run of the job",
        repair=("nothing: the job has run twice; compare lockDuration with the time that jobs take",),
    ),
    DamageCause(
        name="json-unreadable",
        check="json-texts",
        what="a field that must be JSON and is not: other clients cannot read the job",
        why="a client wrote its own language's text (`None`, single quotes, NaN)",
        repair=(_CORRECT,),
    ),
    DamageCause(
        name="field-missing",
        check="required-fields",
        what="a job without a field that every job has",
        why="an id without a hash was taken or updated, which makes half a hash, or a client does not write the field",
        repair=(_CORRECT, _REMOVE_JOB),
    ),
    DamageCause(
        name="finish-fields",
        check="finished-fields",
        what="finishedOn and the result do not fit the state of the job",
        why=_TWO_STEPS,
        repair=("HSET {key} finishedOn MS   (or HDEL {key} finishedOn, if the job has not ended)",),
    ),
    DamageCause(
        name="finish-score",
        check="finish-scores",
        what="the score of an ended job is not its finishedOn: it is kept or removed at the wrong time",
        why="a client wrote seconds, or another time",
        repair=("ZADD {base}completed FINISHED_ON {job}   (or {base}failed)",),
    ),
    DamageCause(
        name="due-score",
        check="due-scores",
        what="the score of a delayed job is not 4096 times its due time: it runs at once, or far too late",
        why="a client wrote ms or seconds as the score",
        repair=("job.changeDelay(MS)",),
    ),
    DamageCause(
        name="priority-score",
        check="priority-scores",
        what="the score of a prioritized job does not contain its priority: it is taken out of turn",
        why="a client wrote the priority itself as the score",
        repair=("job.changePriority({{priority: N}})",),
    ),
    DamageCause(
        name="id-counter-behind",
        check="id-counter",
        what="the counter `id` is below the id of a job: the next job overwrites an existing one",
        why="the counter was deleted, evicted or restored from an older copy",
        repair=("SET {base}id N   (at least the largest id)",),
    ),
    DamageCause(
        name="priority-counter-behind",
        check="priority-counter",
        what="the counter `pc` is below that of a prioritized job: jobs of equal priority run out of order",
        why="the counter was deleted or evicted",
        repair=("SET {base}pc N   (at least the largest counter)",),
    ),
    DamageCause(
        name="pause-layouts",
        check="paused-list",
        what="jobs are in `wait` of a paused queue, or in `paused` of a running one: layouts of 5.x and 6.x",
        why="clients of 5.x and 6.x, or of two ports, paused and added to the same queue",
        repair=("queue.resume(), then queue.pause() again if wanted, with one version only",),
    ),
    DamageCause(
        name="pause-layouts",
        check="nothing-parked",
        what="jobs are in `paused`, which 6.x does not read: they do not run before the next resume",
        why="a client of 5.x paused the queue, or added to it",
        repair=("queue.resume() with 6.x",),
    ),
    DamageCause(
        name="key-expires",
        check="no-expiry",
        what="a key that BullMQ never lets expire: a job or a list will vanish",
        why="EXPIRE by hand or by a clean-up script",
        repair=("PERSIST {key}",),
    ),
    DamageCause(
        name="key-unknown",
        check="no-unknown-keys",
        level="warning",
        what="a key under the prefix that BullMQ does not know, or of another type",
        why="another program uses the prefix, or a client has keys of its own",
        repair=("DEL {key}   (if no program needs it)",),
    ),
    DamageCause(
        name="events-never-trimmed",
        check="event-streams",
        what="an event stream far longer than its limit: it grows until Redis is full",
        why="a client adds events without MAXLEN",
        repair=("queue.trimEvents(10000)",),
    ),
    DamageCause(
        name="no-hash-tag",
        check="hash-tags",
        what="keys without a common hash tag in a cluster: scripts fail with CROSSSLOT",
        why="the prefix or the queue name has no `{{…}}`",
        repair=("use a prefix with a hash tag, such as {{bull}}, in all clients",),
    ),
    DamageCause(
        name="evicting-policy",
        check="eviction",
        level="warning",
        what="Redis may evict jobs when its memory is full",
        why="maxmemory-policy is not noeviction",
        repair=("CONFIG SET maxmemory-policy noeviction",),
    ),
    DamageCause(
        name="memory-nearly-full",
        check="memory",
        level="warning",
        what="Redis has nearly used up its memory: then every script fails",
        why="the store grows: jobs are not removed, or not worked off",
        repair=("raise maxmemory, or set removeOnComplete and removeOnFail",),
    ),
    DamageCause(
        name="several-releases",
        check="versions",
        level="warning",
        what="queues were opened by several releases of BullMQ",
        why="not all clients were upgraded",
        repair=("bullmq-conformance versions mixed A B   (which features the two can share)",),
    ),
    DamageCause(
        name="worker-name-unreadable",
        check="connection-names",
        level="warning",
        what="a connection that getWorkers does not count",
        why="the client names its connections otherwise, or not at all",
        repair=("upgrade the client",),
    ),
)
"""Every cause, in the order of reports of equal weight."""

CAUSE_OF: Mapping[str, DamageCause] = MappingProxyType({cause.name: cause for cause in reversed(CAUSES)})
"""Causes by name. Two checks may have one cause: then the first row."""


def cause_of(check: str, place: str, message: str) -> DamageCause:
    """The cause of a finding of a check. Raises LookupError for a check without a row."""
    found = next((cause for cause in CAUSES if cause.fits(check, place, message)), None)
    if found is None:
        raise LookupError(f"the check {check!r} has no cause for {message!r}")
    return found
