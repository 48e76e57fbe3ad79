"""Rate limits and concurrency that are not kept, kept too well, or counted wrongly."""

from __future__ import annotations

from typing import Any, Final

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.locks import StalledChecker
from conformance.reference_impl.workers.worker import Worker

_ON_LIMITER: Final = 'command[1] == "%s" and on(command, "limiter")'
_FETCHING: Final = ("moveToActive", "moveToFinished")
"""The scripts that hand out jobs."""
_MINUTE_MS: Final = 60_000
PATIENCE_S: Final = 60
"""Longer than any scenario waits."""
_READS_META: Final = 'command[1] == "HMGET" and on(command, "meta")'
_NO_LIMIT: Final = f"if {_READS_META} then local found = send(unpack(command)) found[2] = false return found end"
"""Lua: the script takes a queue with a limit for one without."""
_COUNTS_ACTIVE: Final = 'command[1] == "LLEN" and on(command, "active")'


def _edit_fetching(damage: Damage, body: str) -> None:
    for script in _FETCHING:
        damage.commands(script, body)


def _with_other_settings(change: str) -> str:
    """Lua: what the script reads from `meta` (paused, concurrency, max, duration), changed."""
    return (
        'if command[1] == "HMGET" and on(command, "meta") then '
        f"local found = send(unpack(command)) {change} return found end"
    )


@mutant("ratelimit.never-asked", kills=("ratelimit.inside-the-claim", "ratelimit.queue-wide", "ratelimit.by-hand"))
def never_asked(damage: Damage) -> None:
    """A claim does not read the counter."""
    _edit_fetching(damage, f"if {_ON_LIMITER % 'GET'} then return false end")


@mutant("ratelimit.uncounted", kills=("ratelimit.inside-the-claim",))
def uncounted(damage: Damage) -> None:
    """Starts are not counted."""
    _edit_fetching(damage, f"if {_ON_LIMITER % 'INCR'} then return 2 end")


@mutant("ratelimit.counts-refusals", kills=("ratelimit.inside-the-claim",))
def counts_refusals(damage: Damage) -> None:
    """A refused claim is counted as a start."""
    damage.commands("moveToActive", f"if {_ON_LIMITER % 'PTTL'} then send('INCR', command[2]) end")


@mutant("ratelimit.takes-first", kills=("ratelimit.inside-the-claim",))
def takes_first(damage: Damage) -> None:
    """A claim takes the next job before it asks, and puts it back when the limit is reached: behind the others."""
    damage.commands(
        "moveToActive",
        f"if {_ON_LIMITER % 'PTTL'} then "
        "local job = send('RPOP', KEYS[1]) if job then send('LPUSH', KEYS[1], job) "
        "else local first = send('ZPOPMIN', KEYS[3]) if first[1] then send('LPUSH', KEYS[1], first[1]) end end end",
    )


@mutant("ratelimit.prolonged", kills=("ratelimit.window",))
def prolonged(damage: Damage) -> None:
    """Every start restarts the window."""
    _edit_fetching(
        damage,
        f"if {_ON_LIMITER % 'INCR'} then local count = send('INCR', command[2]) "
        f"if count > 1 then send('PEXPIRE', command[2], {_MINUTE_MS}) end return count end",
    )


@mutant("ratelimit.retries-are-free", kills=("ratelimit.window",))
def retries_are_free(damage: Damage) -> None:
    """Only first attempts are counted."""
    damage.commands(
        "moveToActive",
        "if command[1] == 'RPOPLPUSH' then memory.job = send(unpack(command)) return memory.job end "
        f"if {_ON_LIMITER % 'INCR'} and memory.job and send('HEXISTS', ARGV[1] .. memory.job, 'atm') == 1 "
        "then return 2 end",
    )


@mutant("ratelimit.own-limit-wins", kills=("ratelimit.queue-wide",))
def own_limit_wins(damage: Damage) -> None:
    """The limit of the queue has no effect."""
    _edit_fetching(damage, _with_other_settings("found[3] = false found[4] = false"))


@mutant("ratelimit.each-for-itself", kills=("ratelimit.queue-wide", "eviction.throttles"))
def each_for_itself(damage: Damage) -> None:
    """Every worker counts its own starts only."""
    token = "cmsgpack.unpack(ARGV[3])['token']"
    damage.commands(
        "moveToActive",
        "if (command[1] == 'GET' or command[1] == 'INCR' or command[1] == 'PTTL' or command[1] == 'PEXPIRE') and "
        f"on(command, 'limiter') then command[2] = command[2] .. ':' .. string.sub({token}, 1, 36) end",
    )


@mutant("ratelimit.queues-duration-wins", kills=("ratelimit.own-duration",))
def queues_duration_wins(damage: Damage) -> None:
    """The duration in `meta` is taken before the worker's own."""
    _edit_fetching(
        damage,
        f"if {_ON_LIMITER % 'PEXPIRE'} then command[3] = send('HGET', KEYS[9], 'duration') or command[3] end",
    )


@mutant("ratelimit.half-a-setting", kills=("ratelimit.settings",))
def half_a_setting(damage: Damage) -> None:
    """A limit is stored without its duration."""

    async def set_max(queue: Queue, max_jobs: int, _duration: int) -> None:
        await queue.connection.command("HSET", queue.keys.key("meta"), "max", max_jobs)

    damage.replace(Queue, "setGlobalRateLimit", set_max)


@mutant("ratelimit.not-taken-away", kills=("ratelimit.settings",))
def not_taken_away(damage: Damage) -> None:
    """A limit that was removed is still there."""

    async def nothing(_queue: Queue) -> None:
        return None

    damage.replace(Queue, "removeGlobalRateLimit", nothing)


@mutant("ratelimit.by-hand-counts-one", kills=("ratelimit.by-hand",))
def by_hand_counts_one(damage: Damage) -> None:
    """A limit set by hand is a single start."""

    async def count_one(queue: Queue, expire_ms: int) -> None:
        await queue.connection.command("SET", queue.keys.key("limiter"), 1, "PX", expire_ms)

    damage.replace(Queue, "rateLimit", count_one)


@mutant("ratelimit.unlimited-obeys", kills=("ratelimit.unlimited",))
def unlimited_obeys(damage: Damage) -> None:
    """A worker without limit still obeys the counter."""
    _edit_fetching(damage, _with_other_settings("found[3] = found[3] or '1000000' found[4] = found[4] or '1'"))


@mutant("ratelimit.key-stays", kills=("ratelimit.remove-key",))
def key_stays(damage: Damage) -> None:
    """Removing the counter leaves it where it is."""

    async def keep(_queue: Queue) -> int:
        return 0

    damage.replace(Queue, "removeRateLimitKey", keep)


@mutant("ratelimit.ttl-ignores-the-limit", kills=("ratelimit.ttl",))
def ttl_ignores_the_limit(damage: Damage) -> None:
    """The time to live of the counter is answered, also below the limit."""
    damage.argument("getRateLimitTtl", 0, lambda _most: "1")


@mutant("ratelimit.fetches-beyond", kills=("ratelimit.fetch-next",))
def fetches_beyond(damage: Damage) -> None:
    """Finishing a job hands out the next although the window is full."""
    damage.commands("moveToFinished", f"if {_ON_LIMITER % 'GET'} then return false end")


@mutant("ratelimit.fetches-uncounted", kills=("ratelimit.fetch-next",))
def fetches_uncounted(damage: Damage) -> None:
    """A job that comes with the answer of another is not counted."""
    damage.commands("moveToFinished", f"if {_ON_LIMITER % 'INCR'} then return 2 end")


@mutant("ratelimit.limited-promotes-nothing", kills=("ratelimit.promotes",))
def limited_promotes_nothing(damage: Damage) -> None:
    """Due jobs stay in `delayed` while the window is full."""
    damage.commands(
        "moveToActive", "if command[1] == 'ZRANGEBYSCORE' and send('EXISTS', KEYS[6]) == 1 then return {} end"
    )


@mutant("ratelimit.goes-behind", kills=("ratelimit.job-goes-back",))
def goes_behind(damage: Damage) -> None:
    """A job that met a limit goes behind the others."""
    damage.commands("moveJobFromActiveToWait", 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("ratelimit.goes-back-as-an-attempt", kills=("ratelimit.job-goes-back",))
def goes_back_as_an_attempt(damage: Damage) -> None:
    """A job that met a limit has made an attempt."""
    damage.commands("moveJobFromActiveToWait", 'if command[1] == "LREM" then send("HINCRBY", ARGV[3], "atm", 1) end')


@mutant("ratelimit.goes-back-unparked", kills=("ratelimit.job-goes-back",))
def goes_back_unparked(damage: Damage) -> None:
    """A job that met a limit goes into `wait` although the queue is paused."""
    damage.commands("moveJobFromActiveToWait", _with_other_settings("found[1] = false"))


@mutant("ratelimit.windows-cut-short", kills=("ratelimit.goes-on",))
def windows_cut_short(damage: Damage) -> None:
    """A window ends after a third of its time."""
    _edit_fetching(damage, f"if {_ON_LIMITER % 'PEXPIRE'} then command[3] = math.floor(command[3] / 3) end")


@mutant("ratelimit.sleeps-on", kills=("ratelimit.goes-on",))
def sleeps_on(damage: Damage) -> None:
    """A limited worker sleeps a hundred times too long."""

    def longer(healthy: Function) -> Function:
        def limit_for(fetcher: JobFetcher, duration_ms: float) -> Any:
            return healthy(fetcher, duration_ms * 100)

        return limit_for

    damage.around(JobFetcher, "limit_for", longer)


@mutant("ratelimit.oversleeps", kills=("ratelimit.goes-on",))
def oversleeps(damage: Damage) -> None:
    """A limited worker sleeps for two windows more than it has to."""

    def longer(healthy: Function) -> Function:
        def limit_for(fetcher: JobFetcher, duration_ms: float) -> Any:
            return healthy(fetcher, duration_ms * 3)

        return limit_for

    damage.around(JobFetcher, "limit_for", longer)


@mutant("concurrency.unlimited", kills=("concurrency.queue-wide", "concurrency.paused"))
def unlimited(damage: Damage) -> None:
    """A claim overlooks the limit of the queue."""
    damage.commands("moveToActive", _NO_LIMIT)


@mutant("concurrency.one-too-many", kills=("concurrency.queue-wide",))
def one_too_many(damage: Damage) -> None:
    """A claim takes one job more than the queue allows."""
    damage.commands("moveToActive", f"if {_COUNTS_ACTIVE} then return send(unpack(command)) - 1 end")


@mutant("concurrency.counts-waiting", kills=("concurrency.queue-wide",))
def counts_waiting(damage: Damage) -> None:
    """Jobs that wait are counted like active ones."""
    damage.commands(
        "moveToActive", f'if {_COUNTS_ACTIVE} then return send(unpack(command)) + send("LLEN", KEYS[1]) end'
    )


@mutant("concurrency.fetches-beyond", kills=("concurrency.fetch-next",))
def fetches_beyond_concurrency(damage: Damage) -> None:
    """Finishing a job hands out the next although the queue is full."""
    damage.commands("moveToFinished", _NO_LIMIT)


@mutant("concurrency.fetches-nothing", kills=("concurrency.fetch-next",))
def fetches_nothing(damage: Damage) -> None:
    """Finishing a job counts that job as active still, so that the place stays empty."""
    damage.commands("moveToFinished", f"if {_COUNTS_ACTIVE} then return send(unpack(command)) + 1 end")


@mutant("concurrency.wakes-for-nothing", kills=("concurrency.no-marker",))
def wakes_for_nothing(damage: Damage) -> None:
    """Adding a job to a full queue wakes a worker."""
    damage.commands("add*Job", _NO_LIMIT)


@mutant("concurrency.full-promotes-nothing", kills=("concurrency.promotes",))
def full_promotes_nothing(damage: Damage) -> None:
    """Due jobs stay in `delayed` while the queue is full."""
    damage.commands("moveToActive", "if command[1] == 'ZRANGEBYSCORE' and send('LLEN', KEYS[2]) > 0 then return {} end")


@mutant("concurrency.own-name", kills=("concurrency.settings",))
def own_name(damage: Damage) -> None:
    """The limit is stored under a name that no other client knows."""
    damage.around(
        Queue,
        "setGlobalConcurrency",
        lambda _healthy: _set_under_another_name,
    )


async def _set_under_another_name(queue: Queue, concurrency: int) -> None:
    await queue.connection.command("HSET", queue.keys.key("meta"), "maxConcurrency", concurrency)


@mutant("concurrency.never-maxed", kills=("concurrency.is-maxed",))
def never_maxed(damage: Damage) -> None:
    """A full queue is reported as having room."""
    damage.commands("isMaxed", f"if {_COUNTS_ACTIVE} then return 0 end")


@mutant("concurrency.room-beats-pause", kills=("concurrency.paused",))
def room_beats_pause(damage: Damage) -> None:
    """A queue with a limit hands out jobs while it is paused, as long as there is room."""
    damage.commands(
        "moveToActive",
        f"if {_READS_META} then local found = send(unpack(command)) "
        'if found[2] and found[1] then send("RPOPLPUSH", KEYS[8], KEYS[1]) found[1] = false end return found end',
    )


@mutant("concurrency.refusal-counts", kills=("concurrency.rate-limited",))
def refusal_counts(damage: Damage) -> None:
    """A claim that finds the queue full is counted as a start."""
    damage.commands(
        "moveToActive",
        f"if {_COUNTS_ACTIVE} then local active = send(unpack(command)) "
        'if active > 0 then send("INCR", KEYS[6]) end return active end',
    )


@mutant("concurrency.worker-limits-all", kills=("concurrency.each-worker",))
def worker_limits_all(damage: Damage) -> None:
    """A worker makes its own limit that of the queue."""

    def limiting(start: Function) -> Function:
        async def start_and_limit(checker: StalledChecker) -> None:
            worker: Worker = vars(checker)["_worker"]
            await worker.connection.command("HSET", worker.keys.key("meta"), "concurrency", int(worker.concurrency))
            damage.witness.note()
            await start(checker)

        return start_and_limit

    damage.around(StalledChecker, "start", limiting)


@mutant("concurrency.waits-to-be-woken", kills=("concurrency.goes-on",))
def waits_to_be_woken(damage: Damage) -> None:
    """A free place is not used before a marker wakes a worker."""
    damage.commands("moveToFinished", f"if {_COUNTS_ACTIVE} then return 1000000 end")
    damage.replace(JobFetcher, "_block_timeout", lambda _fetcher, _until: PATIENCE_S)


@mutant("concurrency.handed-out-twice", kills=("performance.many-workers",))
def handed_out_twice(damage: Damage) -> None:
    """Now and then a claimed job stays in `wait`, and the next worker gets it as well."""
    damage.commands(
        "moveToActive",
        'if command[1] == "RPOPLPUSH" then local job = send(unpack(command)) '
        'if job and send("EXISTS", ARGV[1] .. job .. ":lock") == 0 then send("RPUSH", command[2], job) end '
        "return job end",
    )


@mutant("ratelimit.worker-cannot-say", kills=("ratelimit.by-hand",), by=("rate-limits/a_worker_may_set_the_limit_too",))
def worker_cannot_say(damage: Damage) -> None:
    """`rateLimit` of a worker has no effect."""

    async def keep(_worker: Worker, _expire_ms: int) -> None:
        return None

    damage.replace(Worker, "rateLimit", keep)
