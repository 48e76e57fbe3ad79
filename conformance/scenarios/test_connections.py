"""How many connections a client has, how it replaces dead ones, and how it looks for a Redis that is away."""

from __future__ import annotations

import contextlib
from typing import Any, Final, Literal

import pytest

from conformance.driver.errors import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.ops.flow import AddFlow, FlowJob
from conformance.driver.ops.lifecycle import Role
from conformance.driver.ops.queue import Add
from conformance.participants.expect import Mismatch, between, equal
from conformance.participants.handles import FlowHandle, QueueHandle
from conformance.participants.login import own_login
from conformance.participants.marks import scenario
from conformance.participants.own_redis import own_redis
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import let_idle, wait_for_blocking
from conformance.scenarios.support.steps import node, ran_once

AWAY_MS: Final = 2000
MANY: Final = 30
LONG_MS: Final = 15_000
"""Clients wait for seconds before they connect again."""


@pytest.mark.parametrize("times", [1, 2])
@scenario("connection.silent", clock="real", slow=True, compare=False, cases={"2": ">=6.0.7"})
def test_a_worker_leaves_a_silent_connection(client: Participant, times: int) -> None:
    """Its wait for work gets no reply and no error: after its timeout the worker waits on another connection.

    Also if that one stays silent as well.
    """
    queue = client.queue()
    # The stalled check is off: only the wait itself can show that its connection is dead.
    worker = client.worker("noop", drainDelay=1, runRetryDelay=200, skipStalledCheck=True)
    wait = wait_for_blocking(client)[0]
    with contextlib.ExitStack() as silent:
        barriers = [silent.enter_context(client.tap.hold(wait, call=call)) for call in range(1, times + 1)]
        barriers[0].wait()
        queue.add("work")
        worker.wait_local("completed", "1", within_ms=LONG_MS)
    worker.close()


@scenario("liveness.close-connections", clock="real", slow=True, compare=False)
def test_a_closed_worker_never_connects_again(client: Participant) -> None:
    """Not even when the timers of its last wait for work would be due."""
    queue = client.queue()
    job = queue.add("work")
    of_queue = len(client.tap.connections())
    # Twice a second for the stalled check: its timer must end as well.
    worker = client.worker("noop", drainDelay=1, stalledInterval=500)
    worker.wait_local("completed", job)
    let_idle(client)
    worker.close()
    client.eventually(
        lambda: len(client.tap.connections()), lambda left: left <= of_queue, "only the queue is connected"
    )
    opened = client.tap.opened
    # 3 s: the wait of 1 s for work, and what a client adds to it before it takes its connection for dead.
    client.pass_time(3000)
    equal(client.tap.opened - opened, 0, "no connection is opened after the close")


@pytest.mark.parametrize("what", ["worker", "events", "queue"])
@scenario(
    "connection.paced",
    clock="real",
    slow=True,
    compare=False,
    without={
        "worker-errors": "clients may report a lost connection in any way",
        "times-in-order": "Node sends a fetch of before the outage again, with its time",
    },
)
def test_redis_is_looked_for_without_haste(client: Participant, what: str) -> None:
    """While Redis is away, a client pauses between two attempts to connect, and between two reports of it."""
    queue = client.queue()
    if what == "events":
        client.events()
    worker = client.worker("noop", drainDelay=1) if what == "worker" else None
    before_it = queue.add("before")
    if worker is not None:
        worker.wait_local("completed", before_it)
    with client.tap.outage():
        before = client.tap.opened
        client.pass_time(AWAY_MS)
        # 10 in a second: Node makes one or two (more on a cluster), and a loop without a pause makes hundreds.
        most = AWAY_MS // (10 if client.on_cluster else 100)
        between(client.tap.opened - before, 0, most, "few attempts to connect are made meanwhile")
    if worker is not None:
        if worker.reports_events:
            between(len(worker.errors()), 0, most, "the worker has reported few errors")
        # Node's close may hang while a worker connects again.
        client.eventually(
            lambda: (_outcome(client, "queue", queue.handle, within_ms=LONG_MS), len(queue.redis.members("completed"))),
            lambda seen: seen[0] == "ok" and seen[1] > 1,
            "the worker works again",
            within_ms=LONG_MS,
        )
        worker.close()


@scenario("connection.call-waits", clock="real", slow=True, compare=False)
def test_a_call_waits_for_redis(client: Participant) -> None:
    """It is made while Redis is away for some seconds, and returns when Redis is back."""
    with own_redis(client, appendonly="yes", appendfsync="always") as alone:
        queue = alone.client.queue()
        queue.add("before")
        with alone.away():
            adding = alone.client.meanwhile(lambda: _outcome(alone.client, "queue", queue.handle, within_ms=40_000))
            # 2 s: longer than a few quick attempts take.
            alone.client.pass_time(2000)
        equal(adding.result(within_ms=40_000), "ok", "the call succeeds")
        equal(len(queue.redis.elements("wait")), 2, "both jobs are there")


@scenario("chaos.reconnect", clock="real", slow=True, compare=False)
def test_a_result_waits_for_redis(client: Participant) -> None:
    """A job ends while Redis is away for some seconds: its result is stored when Redis is back."""
    with own_redis(client, appendonly="yes", appendfsync="always") as alone:
        # A minute of life: only the result of this run may be stored, not that of another one.
        queue, worker = alone.client.queue(), alone.client.worker("ask", lockDuration=60_000)
        job = queue.add("running")
        worker.next_job()
        with alone.away():
            worker.resolve(job, value_raw='"kept"')
            # 2 s: longer than a few quick attempts take.
            alone.client.pass_time(2000)
        alone.client.eventually(
            lambda: queue.redis.state(job), lambda state: state == ["completed"], "the job ends", within_ms=30_000
        )
        equal(queue.redis.field(job, "returnvalue"), '"kept"', "the result is stored", where="job.returnvalue")
        ran_once(queue, job)
        worker.close()


@pytest.mark.parametrize("options", [{}, {"blockingConnection": True}, {"skipWaitingForReady": True}], ids=", ".join)
@pytest.mark.parametrize("role", ["queue", "flow"])
@scenario("connection.fail-fast", clock="real", slow=True, compare=False)
def test_an_impatient_call_fails(client: Participant, role: Literal["queue", "flow"], options: dict[str, Any]) -> None:
    """It is made while Redis is away, by a client that is set not to wait for it."""
    impatient = client.connecting(fail_fast=True)
    # With this option a handle can be opened without Redis; else it is opened before.
    handle = "" if "skipWaitingForReady" in options else impatient.open(role, "q", **options)
    if client.on_cluster:
        # ioredis looks for the nodes of a cluster for as long as it takes: there the option changes nothing.
        handle = handle or impatient.open(role, "q", **options)
        equal(_outcome(impatient, role, handle, within_ms=10_000), "ok", "a call succeeds while Redis is there")
        return
    with client.tap.outage():
        handle = handle or impatient.open(role, "q", **options)
        # 1.5 s: a call that is sent before the client knows of the outage is repeated by some libraries.
        client.pass_time(1500)
        # 40 s: a driver that gives up by itself would look like a client that does.
        adding = client.meanwhile(lambda: _outcome(impatient, role, handle, within_ms=40_000))
        # Node tries again once, after 1 s.
        equal(adding.result(within_ms=10_000), "connection-lost", "the call fails")


def _outcome(client: Participant, role: str, handle: str, *, within_ms: int) -> str:
    """`ok`, or the code of the error of an add."""
    try:
        if role == "queue":
            QueueHandle(client, "q", handle).call(Add(name="job"), deadline_ms=within_ms)
        else:
            flow = FlowJob(name="job", queue="q", opts={"jobId": "of-a-flow"})  # clients make ids in their own ways
            FlowHandle(client, "", handle).call(AddFlow(flow), deadline_ms=within_ms)
    except (OperationFailed, OperationIndeterminate) as failure:
        return failure.error.code
    return "ok"


@pytest.mark.parametrize("role", ["queue", "worker", "flow"])
@scenario("liveness.no-crash", clock="real", slow=True, compare=False, bullmq=">=5.81.2")
def test_a_missing_redis_ends_no_process(client: Participant, role: Role) -> None:
    """Redis is away when a program starts that has no listener for errors yet."""
    client.queue()
    before = client.tap.opened
    with client.tap.outage():
        handle = client.opening(role, "noop" if role == "worker" else None, unheard=True)
        client.eventually(lambda: client.tap.opened - before, lambda tries: tries > 1, "the client tries to connect")
    client.settle()
    handle.close()
    equal(handle.uncaught(), [], "no error ends the process", where="client.uncaught")


@scenario("liveness.close-calls", clock="real", slow=True, compare=False)
def test_a_close_lets_a_call_end(client: Participant) -> None:
    """A program that stops has added what it wanted to add."""
    queue = client.queue()
    with client.tap.hold("addStandardJob") as barrier:
        adding = client.meanwhile(lambda: _outcome(client, "queue", queue.handle, within_ms=8000))
        barrier.wait()
        closing = client.meanwhile(queue.close)
        # A close that comes after the call would wait for nothing. Every driver can open queues, and starts calls
        # in the order of their arrival.
        closing.wait_until_sent()
        for _ in range(3):
            client.queue()
        # 3 s: a library that drops the connection may leave 2 s for what is under way.
        client.pass_time(3000)
    equal(adding.result(), "ok", "the call succeeds")
    closing.result()
    equal(len(queue.redis.elements("wait")), 1, "the job is there")


@pytest.mark.parametrize("form", ["url", "client"])
@scenario("connection.forms", clock="real", compare=False)
def test_every_form_leads_to_redis(client: Participant, form: str) -> None:
    """A queue, a worker, a reader and a flow producer reach the same Redis, whichever form their address has."""
    given = client.connecting(form=form)
    try:
        queue, reader, flow, worker = given.queue(), given.events(), given.flow(), given.worker("ask")
    except (OperationFailed, OperationIndeterminate) as failure:
        raise Mismatch("the client connects", expected="connected", actual=str(failure), where="answer") from failure
    queue.add("plain", {"a": 1}, jobId="plain")
    reader.wait_for("waiting", "plain")
    taken = worker.next_job().job
    equal((taken.name, taken.data_raw), ("plain", '{"a":1}'), "the worker gets the job as it was added")
    worker.resolve("plain")
    worker.wait_local("completed", "plain")
    flow.add(node("parent"))
    equal(worker.next_job().job.id, "parent", "the worker gets the job of the flow")
    worker.resolve("parent")
    worker.wait_local("completed", "parent")
    for handle in (worker, reader, flow):
        handle.close()
    # With a client of the library, they shared it with the queue.
    equal(_outcome(given, "queue", queue.handle, within_ms=8000), "ok", "the queue still works without the others")
    queue.close()


@pytest.mark.parametrize("form", ["options", "client"])
@scenario("connection.own-wait", clock="real", compare=False)
def test_a_waiting_worker_holds_up_no_call(client: Participant, form: str) -> None:
    """A call made while a worker waits for work, perhaps with the same client of the library, returns soon."""
    given = client.connecting(form=form)
    # 30 s: a call that waits for the end of the wait misses its deadline.
    queue, worker = given.queue(), given.worker("noop", drainDelay=30)
    let_idle(client)
    adding = client.meanwhile(lambda: _outcome(given, "queue", queue.handle, within_ms=40_000))
    equal(adding.result(within_ms=5000), "ok", "the call succeeds")
    worker.wait_local("completed", "1")
    worker.close()


@scenario("connection.bounded", clock="real", compare=False)
def test_many_calls_share_few_connections(client: Participant) -> None:
    """Thirty listings of thirty jobs at once."""
    queue = client.queue()
    queue.add_bulk(*((f"job {number}", {}, {}) for number in range(MANY)))
    before = client.tap.opened
    listings = [client.meanwhile(lambda: queue.jobs("waiting")) for _ in range(MANY)]
    for listing in listings:
        equal(len(listing.result()), MANY, "a listing has all jobs")
    # Half of them: a pool of usual size is allowed, a connection for every command is not.
    between(client.tap.opened - before, 0, MANY // 2, "few connections were opened for them")


@scenario("connection.login", clock="real", compare=False)
def test_every_connection_logs_in(client: Participant) -> None:
    """The user has a password: each connection of a queue, worker, reader and flow producer logs in as that user."""
    others = {view.number for view in client.tap.connections()}  # of an earlier scenario, perhaps not closed yet
    with own_login(client) as known:
        queue, reader, flow, worker = known.queue(), known.events(), known.flow(), known.worker("noop")
        worker.wait_local("completed", queue.add("work"))
        flow.add(node("parent"))
        worker.wait_local("completed", "parent")
        logins = {
            command.connection
            for command in client.tap.commands()
            if b"AUTH" in [word.upper() for word in command.args]
        }
        strangers = [view.name for view in client.tap.connections() if view.number not in logins | others]
        # Before the check, because the end of the block removes the user.
        for handle in (worker, reader, queue, flow):
            handle.close()
    if not logins:
        raise OperationUnsupported("open", "this driver opens handles without the login that it is given")
    equal(strangers, [], "no connection is without login")


@scenario("connection.no-info", clock="real", compare=False)
def test_a_client_works_without_info(client: Participant) -> None:
    """Its user may not ask Redis what it is, and it is set not to."""
    with own_login(client, "-info") as limited:
        try:
            queue = limited.queue(skipVersionCheck=True)
            worker = limited.worker("noop", skipVersionCheck=True)
        except (OperationFailed, OperationIndeterminate) as failure:
            raise Mismatch(
                "the client connects", expected="connected", actual=str(failure), where="answer"
            ) from failure
        worker.wait_local("completed", queue.add("work"))
        for handle in (worker, queue):
            handle.close()
