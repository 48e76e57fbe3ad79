"""The honesty probe and the check: an honest miniature passes, and each lie has its own step and message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from conformance.driver.authoring import CheckStep, check_driver
from conformance.driver.errors import DriverDishonest, DriverHung
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.probe import probe_honesty, probe_unknown_operations
from conformance.driver.serve import DriverServer, Handler, OpError, Unsupported
from conformance.driver.smoke import PRESETS, PresetJob
from conformance.driver.transports import InProcess

Args = dict[str, Any]

CAPABILITIES = ["manual-worker", "managed-worker"]


class HonestClient:
    """A client with a few commands, not BullMQ, whose answers are all true. Tests replace single operations."""

    def __init__(self) -> None:
        self.handles: dict[str, Args] = {}
        self.ops: dict[str, Handler] = {
            "open": self.open,
            "close": self.close,
            "reset": self.reset,
            "queue.add": self.add,
            "queue.getJob": self.get_job,
            "queue.getJobCounts": self.counts,
            "worker.getNextJob": self.claim,
            "worker.moveToCompleted": self.complete,
            "worker.moveToFailed": self.complete,
            "worker.extendLock": self.complete,
            "resolve": self.resolve,
            "flow.add": self.add_flow,
        }
        self.capabilities = list(CAPABILITIES)
        self.without = ""
        """A processor that this driver treats like `noop`."""

    def start(self) -> InProcess:
        client = {"name": "mini", "language": "python", "version": "1"}
        self.server = DriverServer(client=client, capabilities=self.capabilities, ops=self.ops)
        return InProcess.start(self.server)

    def redis(self, handle: str | None) -> Any:
        host, port = self.handles[handle or ""]["redis"]["nodes"][0].split(":")
        return Redis(host=host, port=int(port), decode_responses=True)

    def key(self, handle: str | None, name: str) -> str:
        opened = self.handles[handle or ""]
        return f"{opened['prefix']}:{opened['queue']}:{name}"

    async def open(self, handle: str | None, args: Args) -> None:
        self.handles[handle or ""] = args

    async def close(self, handle: str | None, _args: Args) -> None:
        del self.handles[handle or ""]

    async def reset(self, _handle: str | None, _args: Args) -> None:
        self.handles.clear()

    async def add(self, handle: str | None, args: Args) -> Args:
        async with self.redis(handle) as redis:
            await redis.hset(self.key(handle, "1"), mapping={"name": args["name"], "data": args["data_raw"]})
            await redis.lpush(self.key(handle, "wait"), "1")
        await self.run_presets(self.handles[handle or ""]["queue"], args)
        await self.wake(self.handles[handle or ""]["queue"])
        return {"id": "1"}

    async def wake(self, queue: str) -> None:
        """The reaction of a worker or an event reader of the queue to a new job."""
        for name, opened in list(self.handles.items()):
            if opened["queue"] == queue and opened["role"] == "events":
                event = {"name": "waiting", "event_id": "1-0", "fields": {"jobId": "1"}}
                self.server.emit(name, "queue-event", event)
            if opened["queue"] == queue and opened.get("processor") == "noop":
                await self.complete(name, {"job": "1"})
                self.server.emit(name, "completed", {"job": "1"})
            if opened["queue"] == queue and opened.get("processor") == "ask":
                job = {"id": "1", "name": "check", "data_raw": "{}"}
                self.server.emit(name, "job", {"job": job, "token": "t"})

    async def run_presets(self, queue: str, added: Args) -> None:
        for name, opened in list(self.handles.items()):
            if opened["queue"] == queue and opened.get("processor") in PRESETS:
                await self.run_preset(name, opened, json.loads(added["data_raw"]), added["opts"].get("attempts", 1))

    async def run_preset(self, handle: str, opened: Args, data: Any, attempts: int) -> None:
        """Do what a processor leaves in Redis, for a job with this number of attempts."""
        settings, reason = opened["processor_args"], ""
        left: Args = {"returnvalue": None}
        match "" if opened["processor"] == self.without else opened["processor"]:
            case "echo":
                left = {"returnvalue": data}
            case "sleep":
                await asyncio.sleep(settings["ms"] / 1000)
            case "fail" if attempts <= settings["times"]:
                reason = settings["message"]
            case "throw":
                reason = settings["message"]
            case "progress":
                left["progress"] = settings["values"][-1]
            case "steps":
                reason = "".join(step["message"] for step in data["steps"] if step["do"] == "unrecoverable")
                left = {"returnvalue": "done", "progress": 7}
        async with self.redis(handle) as redis:
            if opened["processor"] == "steps" and self.without != "steps":
                await redis.rpush(self.key(handle, "1:logs"), "checked")
            hash_fields = {"failedReason": reason} if reason else {name: json.dumps(left[name]) for name in left}
            await redis.hset(self.key(handle, "1"), mapping=hash_fields)
            await redis.zadd(self.key(handle, "failed" if reason else "completed"), {"1": 1})

    async def add_flow(self, handle: str | None, args: Args) -> Args:
        queue, children = args["flow"]["queue"], args["flow"]["children"]
        self.handles[handle or ""]["queue"] = queue
        async with self.redis(handle) as redis:
            await redis.zadd(self.key(handle, "waiting-children"), {"p": 1})
            await redis.lpush(self.key(handle, "wait"), *("c" for _ in children))
        return {"id": "p", "queue": queue, "children": [{"id": "c", "queue": queue} for _ in children]}

    async def get_job(self, handle: str | None, args: Args) -> Args:
        async with self.redis(handle) as redis:
            found = await redis.hgetall(self.key(handle, args["job"]))
        return {"job": {"id": "1", "name": found["name"], "data_raw": found["data"]} if found else None}

    async def counts(self, handle: str | None, _args: Args) -> Args:
        async with self.redis(handle) as redis:
            waiting = await redis.llen(self.key(handle, "wait"))
        return {"counts": {"waiting": waiting, "completed": 0}}

    async def claim(self, handle: str | None, _args: Args) -> Args:
        async with self.redis(handle) as redis:
            job = await redis.lmove(self.key(handle, "wait"), self.key(handle, "active"), "RIGHT", "LEFT")
        return {"job": {"id": job, "name": "check", "data_raw": "{}"} if job else None}

    async def complete(self, handle: str | None, args: Args) -> Args:
        async with self.redis(handle) as redis:
            await redis.zadd(self.key(handle, "completed"), {args["job"]: 1})
        return {"job": None}

    async def resolve(self, handle: str | None, args: Args) -> None:
        await self.complete(handle, args)


async def untrue(_handle: str | None, _args: Args) -> Args:
    """Says what every check wants to hear, and does nothing."""
    return {"id": "1", "job": None, "value": True}


@pytest.fixture
def check(address: RedisAddress, redis: Any, prefix: str) -> Callable[..., list[CheckStep]]:
    def run(client: HonestClient) -> list[CheckStep]:
        return check_driver(client.start, address=address, redis=redis, prefix=prefix, seed=3)

    return run


def failing(steps: list[CheckStep]) -> dict[str, str]:
    return {step.name: step.detail for step in steps if not step.ok}


def test_an_honest_driver_passes_every_step(check: Any) -> None:
    steps = check(HonestClient())
    assert failing(steps) == {}
    assert [step.name for step in steps] == [
        "handshake",
        "honesty",
        "open",
        "add",
        "getJob",
        "counts",
        "manual worker",
        "managed worker",
        "processor ask",
        *(f"processor {name}" for name in PRESETS),
        "flow",
        "events",
        "reset",
        "end",
    ]
    assert all(step.tried for step in steps)


def test_an_honest_driver_passes_the_probe(address: RedisAddress, redis: Any, prefix: str) -> None:
    connection = HonestClient().start()
    assert probe_honesty(connection, address=address, redis=redis, prefix=prefix, seed=1) == []
    assert redis.type(f"{prefix}:honesty:1") == b"hash"
    connection.kill()


def test_ok_without_writing_is_dishonest(check: Any, address: RedisAddress, redis: Any, prefix: str) -> None:
    client = HonestClient()
    client.ops["queue.add"] = untrue
    connection = client.start()
    with pytest.raises(DriverDishonest, match=r"`ok` to queue.add with the id '1', but Redis has no hash .*:honesty:1"):
        probe_honesty(connection, address=address, redis=redis, prefix=prefix, seed=1)
    connection.kill()
    last = check(client)[-1]
    assert (last.name, last.broken) == ("add", True)
    assert "has no hash" in last.detail


class AlwaysOkServer(DriverServer):
    async def _outcome(self, call: Args) -> Args:
        return {"status": "ok", "value": {"id": "1", "asked": call["op"]}}


def test_ok_to_an_unknown_operation_is_dishonest(address: RedisAddress, redis: Any, prefix: str) -> None:
    server = AlwaysOkServer(
        client={"name": "yes", "language": "x", "version": "1"}, capabilities=[], ops={"queue.add": untrue}
    )
    connection = InProcess.start(server)
    with pytest.raises(DriverDishonest, match=r"answered `ok` to the unknown operation 'queue.z\w{7}'"):
        probe_honesty(connection, address=address, redis=redis, prefix=prefix, seed=1)
    connection.kill()
    start = lambda: InProcess.start(server)  # noqa: E731
    last = check_driver(start, address=address, redis=redis, prefix=prefix, seed=1)[-1]
    assert (last.name, last.broken) == ("honesty", True)


def test_fail_to_an_unknown_operation_is_dishonest(mini: Any) -> None:
    body = "ready()\nwhile True: say(type='result', id=hear()['id'], status='fail', error={'message': 'what?'})"
    with pytest.raises(DriverDishonest, match="answered `fail`"):
        probe_unknown_operations(mini(body), seed=1)


def test_the_seed_chooses_the_unknown_operations(mini: Any) -> None:
    body = """
ready()
while True:
    call = hear()
    print(call['op'], file=sys.stderr, flush=True)
    unsupported(call)
"""
    asked = []
    for seed in (1, 1, 2):
        connection = mini(body)
        probe_unknown_operations(connection, seed=seed)
        connection.close()
        connection._log.wait_for_end(5)
        asked.append(connection.log_tail())
    assert asked[0] == asked[1] != asked[2]


@pytest.mark.parametrize("refusal", [OpError("other", "no"), OpError("other", "no", status="info"), Unsupported("no")])
def test_a_client_that_admits_it_cannot_add_is_honest(
    refusal: Exception, address: RedisAddress, redis: Any, prefix: str
) -> None:
    async def add(_handle: str | None, _args: Args) -> None:
        raise refusal

    client = HonestClient()
    client.ops["queue.add"] = add
    connection = client.start()
    notes = probe_honesty(connection, address=address, redis=redis, prefix=prefix, seed=1)
    assert "no write could be checked in Redis" in notes[0]
    connection.kill()


def replaced(op: str, handler: Handler) -> HonestClient:
    client = HonestClient()
    client.ops[op] = handler
    return client


def test_a_job_that_cannot_be_read_back(check: Any) -> None:
    assert "queue.getJob returned None" in failing(check(replaced("queue.getJob", untrue)))["getJob"]


def test_a_job_that_is_found_though_it_does_not_exist(check: Any) -> None:
    async def always(_handle: str | None, _args: Args) -> Args:
        return {"job": {"id": "1", "name": "check", "data_raw": "{}"}}

    assert "returned a job that does not exist" in failing(check(replaced("queue.getJob", always)))["getJob"]


def test_wrong_counts(check: Any) -> None:
    async def wrong(_handle: str | None, _args: Args) -> Args:
        return {"counts": {"wait": 1}}

    assert "returned {'wait': 1}" in failing(check(replaced("queue.getJobCounts", wrong)))["counts"]


def test_a_job_that_is_not_claimed(check: Any) -> None:
    assert "worker.getNextJob returned None" in failing(check(replaced("worker.getNextJob", untrue)))["manual worker"]


def test_a_completion_that_is_not_in_redis(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.driver.smoke.SEEN_WITHIN_MS", 50)
    seen = failing(check(replaced("worker.moveToCompleted", untrue)))
    assert list(seen) == ["manual worker"]
    assert "job 1 is not in" in seen["manual worker"]
    assert "it is in active" in seen["manual worker"]


def test_silent_workers_and_readers(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.driver.smoke.SEEN_WITHIN_MS", 50)

    class Silent(HonestClient):
        async def wake(self, queue: str) -> None:
            pass

    seen = failing(check(Silent()))
    assert list(seen) == ["managed worker", "processor ask", "events"]
    assert "it is in wait" in seen["managed worker"]
    assert "no event job of worker-ask" in seen["processor ask"]
    assert "no event queue-event of events-events" in seen["events"]


@pytest.mark.parametrize("processor", list(PRESETS))
def test_a_processor_that_does_nothing_is_named(check: Any, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if processor == "sleep":
        # Longer than a job that does not sleep takes on a busy machine.
        monkeypatch.setitem(PRESETS, "sleep", (PresetJob(settings={"ms": 600_000}, takes_ms=600_000),))
    client = HonestClient()
    client.without = processor
    steps = check(client)
    assert list(failing(steps)) == [f"processor {processor}"]
    assert next(step.hint for step in steps if not step.ok).startswith(
        f"fix it in the driver: in processor `{processor}`, "
    )


@pytest.mark.parametrize(
    ("event", "args"),
    [("failed", {"job": "1", "message": "x"}), ("error", {"message": "moving to failed: failed by driver check"})],
)
def test_a_job_that_stays_although_its_end_was_reported_is_the_clients(
    check: Any, monkeypatch: pytest.MonkeyPatch, event: str, args: Args
) -> None:
    monkeypatch.setattr("conformance.driver.smoke.SEEN_WITHIN_MS", 300)

    class Forgets(HonestClient):
        async def run_preset(self, handle: str, opened: Args, data: Any, attempts: int) -> None:
            if opened["processor"] == "throw":
                self.server.emit(handle, event, args)
            else:
                await super().run_preset(handle, opened, data, attempts)

    steps = check(Forgets())
    failed = {step.name: step.hint for step in steps if not step.ok}
    assert list(failed) == ["processor throw"]
    assert failed["processor throw"].startswith("fix it in the client: its worker has reported")


def test_an_error_of_the_driver_itself_is_fixed_in_the_driver(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.driver.smoke.SEEN_WITHIN_MS", 300)

    class Lacks(HonestClient):
        async def run_preset(self, handle: str, opened: Args, data: Any, attempts: int) -> None:
            if opened["processor"] == "throw":
                self.server.emit(handle, "error", {"message": "no processor throw"})
            else:
                await super().run_preset(handle, opened, data, attempts)

    [step] = [step for step in check(Lacks()) if not step.ok]
    assert "its worker reported the error 'no processor throw'" in step.detail
    assert step.hint.startswith("fix it in the driver: ")


def test_an_error_of_the_client_is_fixed_in_the_client(check: Any) -> None:
    async def refuses(_handle: str | None, _args: Args) -> Args:
        raise OpError("other", "no connection")

    steps = check(replaced("queue.getJobCounts", refuses))
    assert next(step.hint for step in steps if step.name == "counts").startswith("fix it in the client: ")


def test_a_processor_that_always_throws_is_not_one_that_fails_at_first(check: Any) -> None:
    class Throws(HonestClient):
        async def run_preset(self, handle: str, opened: Args, data: Any, attempts: int) -> None:
            await super().run_preset(handle, opened, data, min(attempts, 1))

    assert failing(check(Throws())) == {
        "processor fail": "job 1 is in failed, not in completed; its failedReason is 'failed by driver check'"
    }


def test_a_refused_processor_is_named_and_no_failure(check: Any) -> None:
    class Refuses(HonestClient):
        async def open(self, handle: str | None, args: Args) -> None:
            if args.get("processor") == "progress":
                raise Unsupported("no progress")
            await super().open(handle, args)

    steps = check(Refuses())
    assert failing(steps) == {}
    assert [step.detail for step in steps if not step.tried] == [
        "not tried: processor progress is unsupported: no progress"
    ]


def test_a_flow_whose_parent_does_not_wait(check: Any) -> None:
    async def nothing(_handle: str | None, args: Args) -> Args:
        return {"id": "p", "queue": args["flow"]["queue"], "children": []}

    assert "waiting-children has 0" in failing(check(replaced("flow.add", nothing)))["flow"]


def test_undeclared_steps_are_skipped_and_do_not_fail(check: Any) -> None:
    client = HonestClient()
    client.capabilities = []
    for op in [op for op in client.ops if op not in {"open", "close", "reset", "queue.add"}]:
        del client.ops[op]
    steps = check(client)
    assert failing(steps) == {}
    untried = {step.name: step.detail for step in steps if not step.tried}
    presets = [f"processor {name}" for name in PRESETS]
    assert list(untried) == ["getJob", "counts", "manual worker", "managed worker", "processor ask", *presets, "flow"]
    assert untried["getJob"] == "not tried: queue.getJob not declared"
    hints = {step.name: step.hint for step in steps if not step.tried}
    assert hints["getJob"].startswith("next: declare queue.getJob: return the job")
    assert hints["processor ask"].startswith("next: declare resolve, the capability managed-worker: in processor")


def test_the_hint_names_only_missing_declarations(check: Any) -> None:
    client = HonestClient()
    del client.ops["resolve"]
    asked = next(step for step in check(client) if step.name == "processor ask")
    assert asked.detail == "not tried: resolve not declared"
    assert asked.hint.startswith("next: declare resolve: ")
    assert "managed-worker" not in asked.hint


def test_a_managed_worker_without_events_gets_a_hint(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.driver.smoke.SEEN_WITHIN_MS", 50)
    emit = DriverServer.emit

    def emit_some(server: DriverServer, handle: str, name: str, args: Args | None = None) -> None:
        if name != "completed":
            emit(server, handle, name, args)

    monkeypatch.setattr(DriverServer, "emit", emit_some)
    steps = check(HonestClient())
    assert list(failing(steps)) == ["managed worker"]
    managed = next(step for step in steps if step.name == "managed worker")
    assert "job 1 is in `completed`, but the driver sent no event `completed` for it" in managed.detail
    assert "send the event `completed` or `failed` with the job's id" in managed.hint
    assert "declare" not in managed.hint


def test_an_unsupported_role_fails_only_for_queues(check: Any) -> None:
    class Queues(HonestClient):
        role = "queue"

        async def open(self, handle: str | None, args: Args) -> None:
            if args["role"] != self.role:
                raise Unsupported(f"no {args['role']}s")
            await super().open(handle, args)

    steps = check(Queues())
    assert failing(steps) == {}
    assert "not tried: role flow is unsupported: no flows" in [step.detail for step in steps]
    assert "not tried: role events is unsupported: no eventss" in [step.detail for step in steps]
    Queues.role = "none"
    assert "open is unsupported: no queues" in failing(check(Queues()))["open"]


def test_missing_basics_fail_the_handshake_and_oddities_are_noted(check: Any) -> None:
    client = HonestClient()
    del client.ops["reset"]
    first = check(client)[0]
    assert not first.ok
    assert "declare reset" in first.hint
    client = HonestClient()
    client.capabilities.append("telepathy")
    del client.ops["resolve"]
    client.ops["queue.brandNew"] = untrue
    first = check(client)[0]
    assert first.ok
    assert "does not know the operations queue.brandNew" in first.hint
    assert "does not know the capabilities telepathy" in first.hint
    assert "managed-worker is declared without resolve" in first.hint


def test_a_declared_operation_that_never_answers_breaks_the_check(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.driver.smoke.DEADLINE_MS", 300)

    async def never(_handle: str | None, _args: Args) -> None:
        await asyncio.get_running_loop().create_future()

    last = check(replaced("queue.getJobCounts", never))[-1]
    assert (last.name, last.broken) == ("counts", True)
    assert last.detail == DriverHung("queue.getJobCounts", 300).what


def test_a_driver_that_cannot_be_started_is_one_broken_step(
    script: Any, address: RedisAddress, redis: Any, prefix: str
) -> None:
    from conformance.driver.transports import ChildProcess

    def start() -> ChildProcess:
        return ChildProcess.start(script("print('why', file=sys.stderr); sys.exit(4)"), seed=1)

    (step,) = check_driver(start, address=address, redis=redis, prefix=prefix, seed=1)
    assert step.broken
    assert "exit code 4" in step.detail
    assert "| why" in step.detail


def test_a_driver_that_stays_when_stdin_ends_fails_the_last_step(
    script: Any, address: RedisAddress, redis: Any, prefix: str
) -> None:
    from conformance.driver.transports import ChildProcess

    body = """
import threading
ready('open', 'close', 'reset')
threading.Thread(target=threading.Event().wait).start()
while line := sys.stdin.readline():
    call = json.loads(line)
    ok(call) if call['op'] in ('open', 'close', 'reset') else unsupported(call)
"""
    start = lambda: ChildProcess.start(script(body), seed=1)  # noqa: E731
    steps = check_driver(start, address=address, redis=redis, prefix=prefix, seed=1)
    assert failing(steps) == {"end": "it did not exit when its stdin ended, and was killed"}
