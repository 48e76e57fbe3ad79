"""Job schedulers by the reference client and by real BullMQ: same steps, same answers, same bytes in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.reference_impl.conftest import Compare, ComparedClient

NOW = 1_700_000_000_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE

REPEATS: dict[str, dict[str, Any]] = {
    "every": {"every": 1000},
    "every-odd": {"every": 777},
    "every-limit": {"every": 1000, "limit": 2},
    "every-start": {"every": 1000, "startDate": NOW + 5500},
    "every-start-past": {"every": 1000, "startDate": NOW - 5500},
    "every-start-text": {"every": 60000, "startDate": "2023-11-14T23:00:00.000Z"},
    "every-end": {"every": 1000, "endDate": NOW + 1500},
    "every-offset": {"every": 1000, "offset": 300},
    "every-immediately": {"every": 1000, "immediately": True},
    "pattern": {"pattern": "*/5 * * * *"},
    "pattern-seconds": {"pattern": "*/10 * * * * *"},
    "pattern-zone": {"pattern": "30 2 * * *", "tz": "Europe/Berlin"},
    "pattern-utc": {"pattern": "0 12 * * *", "utc": True, "tz": "Asia/Tokyo"},
    "pattern-limit": {"pattern": "0 * * * * *", "limit": 2},
    "pattern-start": {"pattern": "0 0 * * *", "startDate": NOW + 3 * DAY},
    "pattern-start-date": {"pattern": "0 0 * * *", "startDate": "2024-02-03"},
    "pattern-end": {"pattern": "0 0 * * *", "endDate": NOW + 3 * DAY},
    "pattern-end-text": {"pattern": "0 0 * * *", "endDate": "2023-11-17T12:00:00Z"},
    "pattern-end-too-soon": {"pattern": "0 0 1 1 *", "endDate": NOW + DAY},
    "pattern-immediately": {"pattern": "0 0 * * *", "immediately": True},
    "pattern-name": {"pattern": "@daily"},
    "pattern-last": {"pattern": "0 0 L * *"},
    "pattern-never": {"pattern": "0 0 * * L"},
    "pattern-unknown-option": {"pattern": "0 0 * * *", "zz": [1], "jobId": "mine"},
    "limit-zero": {"every": 1000, "limit": 0},
    "count": {"every": 1000, "count": 3, "limit": 9},
    "nothing": {},
    "both": {"every": 1000, "pattern": "* * * * *"},
    "immediately-and-start": {"every": 1000, "immediately": True, "startDate": NOW},
    "end-passed": {"every": 1000, "endDate": NOW - 1},
    "bad-pattern": {"pattern": "61 * * * *"},
    "bad-zone": {"pattern": "* * * * *", "tz": "Nowhere/City"},
    "nothing-due": {"every": 0, "pattern": ""},
}


def open_all(client: ComparedClient) -> None:
    client.open("q", "queue")
    client.open("w", "worker", processor="manual")


def upsert(client: ComparedClient, scheduler: str = "s", **args: Any) -> None:
    client.do("queue.upsertJobScheduler", id=scheduler, **args)


def look(client: ComparedClient, scheduler: str = "s") -> None:
    client.do("queue.getJobScheduler", id=scheduler)
    client.do("queue.getJobSchedulers")
    client.do("queue.getJobSchedulersCount")


def run_one(client: ComparedClient, *, fetch_next: bool = False) -> str | None:
    """Claim a job if there is one, and complete it; answers its id."""
    claimed = client.do("worker.getNextJob", "w", token="t")["job"]
    if claimed is None:
        return None
    client.do("worker.moveToCompleted", "w", job=claimed["id"], token="t", value_raw="1", fetch_next=fetch_next)
    return str(claimed["id"])


def jump_to_next(client: ComparedClient, scheduler: str = "s") -> None:
    """Let the clock go to the scheduler's next time."""
    found = client.do("queue.getJobScheduler", id=scheduler)["scheduler"]
    client.now = max(client.now, int(found["next"])) if found else client.now


@pytest.mark.parametrize("name", REPEATS)
def test_a_scheduler_and_its_iterations(name: str, compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat=REPEATS[name], name="tick", data_raw='{"a":1}')
        look(client)
        for _ in range(4):
            jump_to_next(client)
            run_one(client)
        look(client)
        client.do("queue.getJobs", types=["delayed", "waiting", "completed"])
        client.do("queue.removeJobScheduler", id="s")
        client.do("queue.removeJobScheduler", id="s")
        look(client)

    compare(steps)


TEMPLATES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "name": {"name": "näme"},
    "data": {"data_raw": '{"b":1.50, "a":[1,2]}'},
    "empty-data": {"data_raw": "{}"},
    "null-data": {"data_raw": "null"},
    "text-data": {"data_raw": '"é/"'},
    "attempts": {"opts": {"attempts": 3, "backoff": 100}},
    "priority": {"opts": {"priority": 4}},
    "lifo": {"opts": {"lifo": True}},
    "delay": {"opts": {"delay": 12345}},
    "keep": {"opts": {"removeOnComplete": True, "removeOnFail": {"age": 5}, "keepLogs": 3, "sizeLimit": 9}},
    "telemetry": {"opts": {"telemetry": {"metadata": "m", "omitContext": True}}},
    "deduplication": {"opts": {"deduplication": {"id": "d"}}},
    "flags": {"opts": {"failParentOnFailure": True, "stackTraceLimit": 1}},
    "job-id": {"opts": {"jobId": "mine", "timestamp": 5, "prevMillis": NOW + 5000}},
    "unknown": {"opts": {"zz": {"x": None, "y": [1, None]}, "aa": 1.5, "repeat": {"every": 5}}},
}


@pytest.mark.parametrize("repeat", [{"every": 5000}, {"pattern": "*/5 * * * * *"}], ids=["every", "pattern"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name: str, repeat: dict[str, Any], compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat=repeat, **TEMPLATES[name])
        look(client)
        for _ in range(3):
            jump_to_next(client)
            run_one(client)
        client.do("queue.getJobs", types=["delayed", "prioritized", "waiting"])

    compare(steps)


def test_defaults_of_the_queue(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue", options={"defaultJobOptions": {"attempts": 3, "jobId": "x", "removeOnComplete": 5}})
        client.open("w", "worker", processor="manual")
        upsert(client, repeat={"every": 1000})
        upsert(client, "other", repeat={"pattern": "* * * * *"}, opts={"attempts": 1})
        run_one(client)
        look(client)

    compare(steps)


CHANGES: dict[str, list[dict[str, Any]]] = {
    "same": [{"every": 1000}, {"every": 1000}],
    "other-every": [{"every": 1000}, {"every": 3500}],
    "other-pattern": [{"pattern": "*/10 * * * * *"}, {"pattern": "*/7 * * * * *"}],
    "every-to-pattern": [{"every": 1000}, {"pattern": "*/7 * * * * *"}],
    "pattern-to-every": [{"pattern": "*/7 * * * * *"}, {"every": 1000}],
    "limit": [{"every": 1000}, {"every": 1000, "limit": 2}],
    "no-limit": [{"every": 1000, "limit": 2}, {"every": 1000}],
    "dates": [{"every": 1000, "startDate": NOW + 9999, "endDate": NOW + 99999}, {"every": 1000}],
}


@pytest.mark.parametrize("moment", ["waiting", "active", "delayed", "late", "paused", "done"])
@pytest.mark.parametrize("name", CHANGES)
def test_upsert_again(name: str, moment: str, compare: Compare) -> None:
    before, after = CHANGES[name]

    def steps(client: ComparedClient) -> None:
        open_all(client)
        if moment == "paused":
            client.do("queue.pause")
        upsert(client, repeat=before, name="before", data_raw='{"n":1}', opts={"attempts": 2})
        if moment in ("active", "delayed", "done"):
            jump_to_next(client)
            claimed = client.do("worker.getNextJob", "w", token="t")["job"]
            if moment != "active" and claimed:
                client.do("worker.moveToCompleted", "w", job=claimed["id"], token="t")
        client.now += 12345 if moment in ("late", "done") else 10
        upsert(client, repeat=after, name="after", data_raw="[]", opts={"priority": 3})
        look(client)
        upsert(client, repeat=after)
        for _ in range(3):
            jump_to_next(client)
            run_one(client)
        look(client)
        client.do("queue.getJobs", types=["delayed", "prioritized", "waiting", "active", "completed", "paused"])

    compare(steps)


def test_a_late_worker_catches_up(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, "every", repeat={"every": 1000})
        upsert(client, "cron", repeat={"pattern": "* * * * *"})
        for pause in (1, 999, 5432, 61_000, 3_600_000):
            client.now += pause
            while run_one(client):
                pass
        look(client, "every")
        look(client, "cron")

    compare(steps)


def test_fetch_next_makes_the_next_iteration_too(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, "a", repeat={"every": 1000})
        upsert(client, "b", repeat={"every": 1000}, opts={"priority": 1})
        client.do("worker.getNextJob", "w", token="t")
        client.do("worker.moveToCompleted", "w", job=f"repeat:a:{NOW}", token="t", fetch_next=True)
        client.do("worker.moveToFailed", "w", job=f"repeat:b:{NOW}", token="t", message="no", fetch_next=True)
        client.do("queue.getJobs", types=["delayed", "completed", "failed"])

    compare(steps)


def test_a_retried_iteration_makes_no_second_successor(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat={"every": 1000}, opts={"attempts": 3, "backoff": {"type": "fixed", "delay": 10}})
        for _ in range(3):
            claimed = client.do("worker.getNextJob", "w", token="t")["job"]
            assert claimed["id"] == f"repeat:s:{NOW}"
            client.do("worker.moveToFailed", "w", job=claimed["id"], token="t", message="again")
            client.now += 20
        look(client)
        client.do("queue.getJob", job=f"repeat:s:{NOW}")

    compare(steps)


def test_ids_with_colons(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        for scheduler in ("a:b", "a:b:c:d", "a:b:c:d:e", "name:id:1700000000001:UTC:0 0 * * *"):
            upsert(client, scheduler, repeat={"every": 1000})
            look(client, scheduler)
            run_one(client)
        client.do("queue.getJobScheduler", id="missing")
        client.do("queue.getJobScheduler", id="missing:id:1700000000001:UTC:0 0 * * *")
        for scheduler in ("a:b", "a:b:c:d:e"):
            client.do("queue.removeJobScheduler", id=scheduler)
        look(client)

    compare(steps)


def test_lists_of_schedulers(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        for number in range(5):
            upsert(client, f"s{number}", repeat={"every": 1000, "startDate": NOW + 100 * (number * 2 % 5) + 1})
        for asc in (True, False):
            client.do("queue.getJobSchedulers", asc=asc)
            client.do("queue.getJobSchedulers", start=1, end=2, asc=asc)

    compare(steps)


def test_an_iteration_cannot_be_removed_alone(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat={"every": 1000})
        upsert(client, "later", repeat={"pattern": "0 0 * * *"})
        client.do("queue.remove", job=f"repeat:s:{NOW}")
        client.do("job.remove", job=f"repeat:s:{NOW}")
        client.do("queue.drain", delayed=True)
        client.now += 10
        client.do("queue.clean", grace_ms=0, limit=0, type="wait")
        client.do("queue.clean", grace_ms=0, limit=0, type="delayed")
        client.do("job.promote", job=f"repeat:later:{1700006400000}")
        run_one(client)
        run_one(client)
        client.do("queue.remove", job=f"repeat:s:{NOW}")
        look(client)

    compare(steps)


@pytest.mark.parametrize("moment", ["waiting", "prioritized", "delayed", "active"])
def test_removing_a_scheduler(moment: str, compare: Compare) -> None:
    repeat = {"pattern": "*/10 * * * * *"} if moment == "delayed" else {"every": 10_000}

    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat=repeat, opts={"priority": 2} if moment == "prioritized" else {})
        if moment == "active":
            client.do("worker.getNextJob", "w", token="t")
        client.do("queue.removeJobScheduler", id="s")
        look(client)
        if moment == "active":
            client.do("worker.moveToCompleted", "w", job=f"repeat:s:{NOW}", token="t")
        client.now += 20_000
        run_one(client)
        run_one(client)
        upsert(client, repeat=repeat)
        look(client)

    compare(steps)


def test_slots_that_are_taken(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat={"every": 1000})
        client.do("worker.getNextJob", "w", token="t")
        client.do("queue.removeJobScheduler", id="s")
        upsert(client, repeat={"every": 1000})
        client.do("queue.removeJobScheduler", id="s")
        upsert(client, repeat={"every": 1000})
        upsert(client, "p", repeat={"pattern": "*/10 * * * * *"})
        client.now += 10_000
        while run_one(client):
            pass
        client.do("queue.removeJobScheduler", id="p")
        client.now -= 10_000
        upsert(client, "p", repeat={"pattern": "*/10 * * * * *"})

    compare(steps)


def test_an_invalid_stored_pattern_delays_the_job(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        upsert(client, repeat={"pattern": "*/10 * * * * *"})
        (key,) = [key for key in client.state() if key.startswith("P:q:repeat:s:")]
        client.server.connect().hset(key.replace("P", client.prefix, 1), "opts", '{"repeat":{"pattern":"nonsense"}}')
        client.now += 10_000
        client.do("worker.getNextJob", "w", token="t")
        errors = [client.wait("w", "error")["message"] for _ in range(2)]
        client.answers.append(["errors", errors])

    state = compare(steps).state()
    assert state["P:q:delayed"]


def test_managed_worker_keeps_a_schedule(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        upsert(client, repeat={"every": 3_600_000})
        upsert(client, "two", repeat={"pattern": "0 0 * * *", "immediately": True})
        client.open("w", "worker", processor="noop")
        client.wait("w", "drained")
        client.wait_until_idle()
        client.do("close", "w")
        look(client)

    compare(steps)


LEGACY: dict[str, dict[str, Any]] = {
    "every": {"repeat": {"every": 5000}},
    "every-limit": {"repeat": {"every": 5000, "limit": 2}},
    "every-immediately": {"repeat": {"every": 5000, "immediately": True}},
    "every-key": {"repeat": {"every": 5000, "key": "mine"}},
    "pattern": {"repeat": {"pattern": "*/5 * * * * *", "tz": "Asia/Tokyo"}},
    "cron": {"repeat": {"cron": "*/5 * * * * *"}},
    "pattern-immediately": {"repeat": {"pattern": "*/5 * * * * *", "immediately": True}},
    "pattern-end": {"repeat": {"pattern": "*/5 * * * * *", "endDate": NOW + 12_000}},
    "end-text": {"repeat": {"every": 5000, "endDate": "2030-01-01T00:00:00Z", "startDate": NOW}},
    "end-passed": {"repeat": {"every": 5000, "endDate": NOW - 1}},
    "job-id": {"jobId": "own", "repeat": {"every": 5000}},
    "options": {"priority": 3, "attempts": 2, "backoff": 7, "repeat": {"every": 5000}},
    "both": {"repeat": {"every": 5000, "pattern": "* * * * *"}},
    "bad-pattern": {"repeat": {"pattern": "x"}},
    "key-with-colons": {"repeat": {"every": 5000, "key": "a:b:c:d"}},
    "old-key": {"repeat": {"every": 5000, "key": "a:b:c:d:e"}},
    "two-part-key": {"repeat": {"every": 5000, "key": "a:b"}},
}


@pytest.mark.parametrize("name", LEGACY)
def test_the_option_repeat(name: str, compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("queue.add", name="old", data_raw='{"id":"x","v":1}', opts=LEGACY[name])
        client.do("queue.add", name="old", data_raw='{"id":"x","v":2}', opts=LEGACY[name])
        look(client)
        for _ in range(3):
            client.now += 5000
            run_one(client)
        client.do("queue.getJobs", types=["delayed", "waiting", "prioritized", "completed"])

    compare(steps)


def test_repeat_in_a_bulk_is_only_an_option(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        date = "2030-01-01T00:00:00Z"
        client.do("queue.addBulk", jobs=[{"name": "a", "opts": {"repeat": {"every": 5, "endDate": date}}}])
        client.do("queue.addBulk", jobs=[{"name": "a", "opts": {"repeat": {"every": 5}, "delay": 1}}])

    compare(steps)
