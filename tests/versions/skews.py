"""Drivers of releases that never were: each is right alone, and goes wrong with the release that it was made from.

`python -m tests.versions.skews NAME VERSION` starts Node's own driver of that version, and passes the lines of the
protocol on. Before each call it brings what is stored into the layout that Node knows, and after it into its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import redis

from conformance.environment.clients import find_toolchain

QUEUE: Final = "q"
Message = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The keys of one queue."""

    redis: redis.Redis
    base: str

    def key(self, name: str) -> str:
        return self.base + name

    def rename(self, before: str, after: str) -> None:
        """Rename a key if it exists and the other does not."""
        if self.redis.exists(self.key(before)):
            self.redis.renamenx(self.key(before), self.key(after))

    def matching(self, pattern: str) -> list[str]:
        """The keys that match, without the base."""
        found = self.redis.keys(self.base + pattern)
        return sorted(key.decode().removeprefix(self.base) for key in found)  # type: ignore[union-attr]


Change = Callable[[Store], None]


@dataclass(frozen=True)
class Skew:
    """A release that stores something otherwise. `refuses`: why it does not make a call; empty if it does.

    `feature`, `word`: the row and the word with which `versions mixed` must name it. `made_from`: the release.
    """

    feature: str
    word: str
    pack: Change = lambda _: None
    unpack: Change = lambda _: None
    refuses: Callable[[Message], str] = lambda _: ""
    rewrite: Callable[[Message], None] = lambda _: None
    made_from: str = "5.62.0"


class _Changes(TypedDict):
    pack: Change
    unpack: Change


def _renames(before: str, after: str) -> _Changes:
    return _Changes(pack=lambda store: store.rename(before, after), unpack=lambda store: store.rename(after, before))


def _renames_all(prefix: str, other: str) -> _Changes:
    """Every key `prefix*` is called `other*` instead."""

    def move(here: str, there: str) -> Change:
        def change(store: Store) -> None:
            for key in store.matching(f"{here}*"):
                store.rename(key, there + key.removeprefix(here))

        return change

    return _Changes(pack=move(prefix, other), unpack=move(other, prefix))


def _renames_of_jobs(suffix: str, other: str) -> _Changes:
    """Every key `JOB:suffix` is called `JOB:other` instead."""

    def move(here: str, there: str) -> Change:
        def change(store: Store) -> None:
            for key in store.matching(f"*:{here}"):
                store.rename(key, key.removesuffix(here) + there)

        return change

    return _Changes(pack=move(suffix, other), unpack=move(other, suffix))


def _scales_delays(factor: float) -> Change:
    def change(store: Store) -> None:
        due: Any = store.redis.zrange(store.key("delayed"), 0, -1, withscores=True)
        for job, score in due:
            store.redis.zadd(store.key("delayed"), {job: score * factor})

    return change


def _reverses(store: Store) -> None:
    jobs: Any = store.redis.lrange(store.key("wait"), 0, -1)
    if len(jobs) > 1:
        store.redis.delete(store.key("wait"))
        store.redis.rpush(store.key("wait"), *reversed(jobs))


def _moves_field(before: str, after: str) -> Change:
    def change(store: Store) -> None:
        for key in store.matching("*"):
            if store.redis.type(store.key(key)) == b"hash" and key.isdigit():
                value: Any = store.redis.hget(store.key(key), before)
                if value is not None:
                    store.redis.hset(store.key(key), after, value)
                    store.redis.hdel(store.key(key), before)

    return change


def _stretches_limit(factor: int, *, up: bool) -> Change:
    """The life of the limiter is in another unit."""

    def change(store: Store) -> None:
        left: Any = store.redis.pttl(store.key("limiter"))
        if left > 0:
            store.redis.pexpire(store.key("limiter"), left * factor if up else max(1, left // factor))

    return change


def _refuses_option(option: str) -> Callable[[Message], str]:
    def reason(message: Message) -> str:
        return f"the option {option} has been removed" if option in message["args"].get("opts", {}) else ""

    return reason


def _forgets_replacement(message: Message) -> None:
    """A worker that does not know what waits for the end of its job leaves it."""
    if message["op"] in {"worker.moveToCompleted", "worker.moveToFailed"}:
        message["hide"] = "dn:"


def _opens_with(**options: Any) -> Callable[[Message], None]:
    """Workers have other defaults."""

    def rewrite(message: Message) -> None:
        if message["op"] == "open" and message["args"].get("role") == "worker":
            message["args"]["options"] = {**options, **message["args"].get("options", {})}

    return rewrite


def _adds_option(message: Message) -> None:
    if message["op"] == "queue.add":
        message["args"].setdefault("opts", {})["brandNew"] = 1


WRITERS: Final[Mapping[str, Skew]] = {
    "longer-locks": Skew("plain jobs", "nothing", rewrite=_opens_with(lockDuration=45_000)),
    "writes-an-option": Skew("plain jobs", "nothing", rewrite=_adds_option),
    "parks-elsewhere": Skew("pause", "lost", **_renames("paused", "parked")),
}
"""Releases that write something otherwise, whether or not jobs are harmed."""


def _negates_priorities(store: Store) -> None:
    waiting: Any = store.redis.zrange(store.key("prioritized"), 0, -1, withscores=True)
    for job, score in waiting:
        store.redis.zadd(store.key("prioritized"), {job: -score})


def _scales_intervals(factor: float) -> Change:
    """The interval of a schedule is in another unit."""

    def change(store: Store) -> None:
        for key in store.matching("repeat:s"):
            value: Any = store.redis.hget(store.key(key), "every")
            if value is not None:
                store.redis.hset(store.key(key), "every", round(float(value) * factor))

    return change


def _moves_flag(before: str, after: str) -> Change:
    """A field of `meta` has another name."""

    def change(store: Store) -> None:
        value: Any = store.redis.hget(store.key("meta"), before)
        if value is not None:
            store.redis.hset(store.key("meta"), after, value)
            store.redis.hdel(store.key("meta"), before)

    return change


def _moves_members(before: str, after: str, which: Callable[[Store, bytes], bool]) -> _Changes:
    """Some jobs of one sorted set are in another one."""

    def move(here: str, there: str) -> Change:
        def change(store: Store) -> None:
            members: Any = store.redis.zrange(store.key(here), 0, -1, withscores=True)
            for job, score in members:
                if which(store, job):
                    store.redis.zadd(store.key(there), {job: score})
                    store.redis.zrem(store.key(here), job)

        return change

    return _Changes(pack=move(before, after), unpack=move(after, before))


def _was_retried(store: Store, job: bytes) -> bool:
    """A retry by hand keeps the attempts, and a job that was never run has none."""
    attempts: Any = store.redis.hget(store.key(job.decode()), "atm")
    return attempts is not None


def _is_rescheduled(store: Store, job: bytes) -> bool:
    """The owner has another delay than it was added with."""
    delay: Any
    opts: Any
    delay, opts = store.redis.hmget(store.key(job.decode()), "delay", "opts")
    return bool(delay and opts) and int(delay) != json.loads(opts).get("delay", 0)


SKEWS: Final[Mapping[str, Skew]] = {
    "pause-parks-elsewhere": Skew("pause", "lost", **_renames("paused", "parked")),
    "priorities-elsewhere": Skew("priority", "lost", **_renames("prioritized", "priorities")),
    "delay-in-another-unit": Skew("delay", "late", pack=_scales_delays(2), unpack=_scales_delays(0.5)),
    "deduplication-elsewhere": Skew("deduplication for a time", "twice", **_renames_all("de:", "dedup:")),
    "list-from-the-other-end": Skew("plain jobs", "other order", pack=_reverses, unpack=_reverses),
    "attempts-elsewhere": Skew(
        "retry without back-off", "twice", pack=_moves_field("atm", "tries"), unpack=_moves_field("tries", "atm")
    ),
    "limit-in-another-unit": Skew(
        "rate limit of the queue",
        "late",
        pack=_stretches_limit(10, up=True),
        unpack=_stretches_limit(10, up=False),
    ),
    "dependencies-elsewhere": Skew("flow", "lost", **_renames_of_jobs("dependencies", "children")),
    "locks-elsewhere": Skew("stalled check of a running job", "twice", **_renames_of_jobs("lock", "lease")),
    "schedules-elsewhere": Skew("scheduler, interval", "lost", **_renames_all("repeat:", "schedule:")),
    "refuses-an-option": Skew("lifo", "refused", refuses=_refuses_option("lifo")),
    "next-job-elsewhere": Skew(
        "deduplication, keepLastIfActive", "lost", **_renames_all("dn:", "next:"), made_from="6.7.0"
    ),
    "next-job-forgotten": Skew(
        "deduplication, keepLastIfActive", "lost", rewrite=_forgets_replacement, made_from="6.7.0"
    ),
}
"""By name. Those that were made from 6.7.0 are about features newer than 5.62."""

LATER_SKEWS: Final[Mapping[str, Skew]] = {
    "ids-elsewhere": Skew("plain jobs", "lost", **_renames("id", "ids")),
    "priorities-reversed": Skew("priority", "other order", pack=_negates_priorities, unpack=_negates_priorities),
    "interval-in-another-unit": Skew(
        "scheduler, interval", "twice", pack=_scales_intervals(0.001), unpack=_scales_intervals(1000)
    ),
    "limit-elsewhere": Skew("rate limit of the queue", "early", **_renames("limiter", "bucket")),
    "concurrency-elsewhere": Skew(
        "concurrency of the queue",
        "early",
        pack=_moves_flag("concurrency", "at-once"),
        unpack=_moves_flag("at-once", "concurrency"),
    ),
    "pause-by-another-flag": Skew(
        "pause",
        "lost",
        pack=_moves_flag("paused", "stopped"),
        unpack=_moves_flag("stopped", "paused"),
        made_from="6.7.0",
    ),
    "retried-elsewhere": Skew(
        "retry by hand", "lost", **_moves_members("prioritized", "retried", _was_retried), made_from="6.7.0"
    ),
    "rescheduled-elsewhere": Skew(
        "deduplication, reschedule", "lost", **_moves_members("delayed", "moved", _is_rescheduled), made_from="6.7.0"
    ),
    "stalled-jobs-elsewhere": Skew("stalled", "nothing", **_renames("stalled", "suspects"), made_from="6.7.0"),
}
"""Planted after the judging was written; it named all but those that break a limit, for which it had no word."""


@dataclass
class Proxy:
    """Passes lines on between the kit and Node's driver."""

    skew: Skew
    driver: subprocess.Popen[str]
    stores: dict[str, Store] = field(default_factory=dict)

    def run(self) -> None:
        """Until the kit closes its end."""
        for line in sys.stdin:
            message = json.loads(line)
            if message["type"] == "call":
                self._call(message)
            else:
                self._send(message)
                self._pass_on(lambda answer: answer["type"] == "ready")
        assert self.driver.stdin
        self.driver.stdin.close()
        self.driver.wait(timeout=10)

    def _call(self, message: Message) -> None:
        if message["op"] == "open":
            self._note(message["args"])
        if reason := self.skew.refuses(message):
            _say({"type": "result", "id": message["id"], "status": "fail", "error": _error(reason)})
            return
        self.skew.rewrite(message)
        hidden = message.pop("hide", "")
        for store in self.stores.values():
            self.skew.unpack(store)
            _rename_hidden(store, hidden, f"hidden-{hidden}")
        self._send(message)
        answer = self._pass_on(lambda line: line["type"] == "result" and line["id"] == message["id"], hold=True)
        for store in self.stores.values():
            _rename_hidden(store, f"hidden-{hidden}", hidden)
            self.skew.pack(store)
        if message["op"] == "reset":
            self.stores.clear()
        _say(answer)

    def _note(self, args: Message) -> None:
        base = f"{args['prefix']}:{QUEUE}:"
        if base not in self.stores:
            host, _, port = args["redis"]["nodes"][0].rpartition(":")
            self.stores[base] = Store(redis.Redis(host=host, port=int(port)), base)

    def _send(self, message: Message) -> None:
        assert self.driver.stdin
        self.driver.stdin.write(json.dumps(message) + "\n")
        self.driver.stdin.flush()

    def _pass_on(self, until: Callable[[Message], bool], *, hold: bool = False) -> Message:
        """Pass lines to the kit up to one, which is returned; it is passed on as well unless the caller does it."""
        assert self.driver.stdout
        for line in self.driver.stdout:
            answer: Message = json.loads(line)
            if not until(answer):
                _say(answer)
                continue
            if not hold:
                _say(answer)
            return answer
        sys.exit("Node's driver has ended")


def _rename_hidden(store: Store, here: str, there: str) -> None:
    if here in {"", "hidden-"}:
        return
    for key in store.matching(f"{here}*"):
        store.rename(key, there + key.removeprefix(here))


def _error(reason: str) -> Message:
    return {"code": "invalid-argument", "definite": True, "message": reason}


def _say(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main(name: str, version: str) -> None:
    """Start Node's driver of the version, and be the skewed release."""
    launch = find_toolchain("", lambda _: None).launch(f"node@{version}")
    environment = {**os.environ, **launch.environment}
    pipe = subprocess.PIPE
    with subprocess.Popen(launch.command, stdin=pipe, stdout=pipe, text=True, env=environment) as driver:
        Proxy({**WRITERS, **SKEWS, **LATER_SKEWS}[name], driver).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
