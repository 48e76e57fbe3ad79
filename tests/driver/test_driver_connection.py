"""Calls, answers and events, over both transports."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conformance.driver import run_queue, transports
from conformance.driver import serve as serve_module
from conformance.driver.errors import (
    DriverHung,
    EventTimeout,
    HandshakeFailed,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
    SchemaViolation,
)
from conformance.driver.ops import job, lifecycle, queue
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.serve import OpError, Unsupported
from conformance.driver.transports import ChildProcess
from conformance.problems import UsageProblem

Args = dict[str, Any]


async def nothing(_handle: str | None, _args: Args) -> None:
    return None


def answering(value: Any) -> Any:
    async def handler(_handle: str | None, _args: Args) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return handler


def test_every_argument_is_sent_and_the_answer_is_typed(serve: Any) -> None:
    seen: list[tuple[str | None, Args]] = []

    async def add(handle: str | None, args: Args) -> Args:
        seen.append((handle, args))
        return {"id": "5", "more": "ignored"}

    connection = serve({"queue.add": add})
    assert connection.call(queue.Add(name="n", opts={"delay": 1}), handle="q").id == "5"
    assert seen == [("q", {"name": "n", "data_raw": "{}", "opts": {"delay": 1}})]


def test_ready_describes_the_client(serve: Any) -> None:
    ready = serve({"reset": nothing, "close": nothing}, capabilities=("clock",)).ready
    assert (ready.client.name, ready.ops, ready.capabilities) == ("mini", ["close", "reset"], ["clock"])
    assert ready.client.targets == "5.62.0"


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (OpError("wrong-state", "not failed"), OperationFailed, r"queue.add failed \(wrong-state\): not failed"),
        (OpError("timeout", "late", definite=False), OperationIndeterminate, "may or may not .*late"),
        (OpError("connection-lost", "gone", status="info"), OperationIndeterminate, "connection-lost"),
        (Unsupported("not with lifo"), OperationUnsupported, "unsupported: not with lifo"),
        (ZeroDivisionError("by zero"), OperationFailed, r"failed \(other\): ZeroDivisionError: by zero"),
    ],
)
def test_each_status_except_ok_is_an_exception_of_its_own(serve: Any, raised: Any, expected: Any, words: str) -> None:
    connection = serve({"queue.add": answering(raised)})
    with pytest.raises(expected, match=words) as caught:
        connection.call(queue.Add(name="n"))
    assert caught.value.op == "queue.add"
    assert connection.alive


def test_an_undeclared_operation_is_not_sent(serve: Any) -> None:
    seen: list[str] = []

    async def add(_handle: str | None, _args: Args) -> Args:
        seen.append("add")
        return {"id": "1"}

    connection = serve({"reset": add})
    with pytest.raises(OperationUnsupported, match="does not declare it"):
        connection.call(queue.Add(name="n"))
    assert connection.call_raw("queue.add", {}).status == "unsupported"
    assert seen == []


def test_an_answer_that_does_not_fit_leaves_the_driver_usable(serve: Any) -> None:
    connection = serve({"queue.add": answering({"id": 5}), "reset": nothing})
    with pytest.raises(
        SchemaViolation, match=r"answer to queue.add does not fit the schema: Expected `str`, got `int`"
    ):
        connection.call(queue.Add(name="n"))
    connection.call(lifecycle.Reset())


def test_the_clock_is_sent_to_those_who_have_one_and_released_by_reset(serve: Any) -> None:
    instants: list[int | None] = []
    ops = {"queue.pause": nothing, "reset": nothing}
    with_clock = serve(ops, capabilities=("clock",), on_clock=instants.append)
    with_clock.call(queue.Pause(), now_ms=1000)
    with_clock.call(queue.Pause())
    with_clock.call(lifecycle.Reset())
    assert instants == [1000, None]
    instants.clear()
    serve(ops, on_clock=instants.append).call(queue.Pause(), now_ms=1000)
    assert instants == []


def test_calls_are_answered_independently_and_from_several_threads(serve: Any) -> None:
    gate = asyncio.Event()

    async def close(_handle: str | None, _args: Args) -> None:
        await gate.wait()

    async def resume(_handle: str | None, _args: Args) -> None:
        gate.set()

    connection = serve({"close": close, "queue.resume": resume, "queue.pause": nothing})
    with ThreadPoolExecutor(8) as pool:
        waiting = pool.submit(connection.call, lifecycle.Close(), handle="w")
        others = [pool.submit(connection.call, queue.Pause(), handle="w") for _ in range(50)]
        assert all(other.result(10) is not None for other in others)
        assert not waiting.done()
        connection.call(queue.Resume(), handle="w")
        assert waiting.result(10) is not None


class BusyMachine:
    """Says of every process that it was never let run, and counts how often this thread asked it.

    Processes that other tests left ending in the background ask as well, about processes of its own.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lets_run: bool = False) -> None:
        self.asked = 0
        self.when_asked: dict[int, Callable[[], object]] = {}
        self._lets_run = lets_run
        self._asking = threading.get_ident()
        monkeypatch.setattr(run_queue, "thread_waits_s", self._waits_s)

    def _waits_s(self, _pid: int) -> dict[str, float]:
        if threading.get_ident() == self._asking:
            self.asked += 1
            self.when_asked.get(self.asked, list)()
        return {"1": 0.0 if self._lets_run else time.monotonic()}


def test_time_in_which_the_machine_did_not_let_a_driver_run_does_not_count(
    mini: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver answers when its deadline has passed and was put off: at the third question after it."""
    sign = tmp_path / "answer"
    machine = BusyMachine(monkeypatch)
    machine.when_asked[3] = sign.touch
    body = f"import time\nwhile not os.path.exists({str(sign)!r}): time.sleep(0.01)\nready(); hang()"
    assert mini(body, handshake_deadline_ms=4000).ready.protocol == 1
    assert 3 <= machine.asked <= 12


@pytest.mark.parametrize(("lets_run", "asked"), [(True, 2), (False, 12)])
def test_a_deadline_is_extended_only_by_starvation_and_not_without_end(
    lets_run: bool, asked: int, mini: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = BusyMachine(monkeypatch, lets_run=lets_run)
    with pytest.raises(HandshakeFailed, match="did not answer `hello` within 600 ms"):
        mini("hang()", handshake_deadline_ms=600)
    assert machine.asked == asked


def test_a_deadline_ends_the_driver(serve: Any) -> None:
    async def never(_handle: str | None, _args: Args) -> None:
        await asyncio.get_running_loop().create_future()

    connection = serve({"queue.pause": never})
    started = time.monotonic()
    with pytest.raises(DriverHung, match=r"did not answer queue\.pause within 100 ms") as caught:
        connection.call(queue.Pause(), deadline_ms=100)
    assert (caught.value.op, caught.value.deadline_ms) == ("queue.pause", 100)
    assert 0.09 < time.monotonic() - started < 60
    assert not connection.alive


def test_a_waiting_caller_is_woken_when_the_driver_breaks(mini: Any) -> None:
    connection = mini("ready(); hear(); sys.exit(9)")
    problems: list[BaseException] = []

    def wait() -> None:
        try:
            connection.wait_event("w", names={"x"}, deadline_ms=60_000)
        except Exception as problem:  # noqa: BLE001 - handed to the assertion below
            problems.append(problem)

    waiter = threading.Thread(target=wait)
    waiter.start()
    with pytest.raises(Exception, match="exit code 9"):
        connection.call(queue.Add(name="n"))
    waiter.join(10)
    assert "exit code 9" in str(problems)


def emitting(serve: Any, *events: tuple[str, str, Args]) -> Any:
    """A connection whose driver sends these events during `queue.pause`."""

    async def pause(_handle: str | None, _args: Args) -> None:
        for handle, name, args in events:
            emit[0](handle, name, args)

    connection = serve({"queue.pause": pause, "open": nothing, "reset": nothing})
    emit = [connection._handler.emit]
    return connection


def test_a_matching_event_is_taken_and_the_others_stay_in_order(serve: Any) -> None:
    jobs = [("w", "completed", {"job": str(number)}) for number in range(4)]
    connection = emitting(serve, ("w", "drained", {}), *jobs, ("other", "drained", {}))
    connection.call(queue.Pause())
    event = connection.wait_event(
        "w", names={"completed", "failed"}, deadline_ms=1000, where=lambda event: event.args["job"] == "2"
    )
    assert (event.name, event.args) == ("completed", {"job": "2"})
    left = connection.take_events("w")
    assert [event.args.get("job") for event in left] == [None, "0", "1", "3"]
    assert connection.take_events("w") == []
    assert len(connection.take_events("other")) == 1


def test_an_event_may_come_while_it_is_waited_for(serve: Any) -> None:
    connection = emitting(serve, ("w", "drained", {}))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.wait_event, "w", names={"drained"}, deadline_ms=10_000)
        connection.call(queue.Pause())
        assert waiting.result(10).name == "drained"


def test_an_event_that_does_not_come_names_what_came(serve: Any) -> None:
    connection = emitting(serve, ("w", "completed", {"job": "1"}))
    connection.call(queue.Pause())
    with pytest.raises(
        EventTimeout, match=r"no event drained or failed of w within 50 ms; seen: completed \{'job': '1'\}"
    ):
        connection.wait_event("w", names={"failed", "drained"}, deadline_ms=50)
    assert len(connection.take_events("w")) == 1


def test_events_of_an_earlier_object_are_forgotten(serve: Any) -> None:
    connection = emitting(serve, ("w", "drained", {}), ("v", "drained", {}))
    address = RedisAddress(mode="standalone", nodes=[])
    opening = lifecycle.Open(role="queue", queue="q", prefix="p", redis=address)
    connection.call(queue.Pause())
    connection.call(opening, handle="w")
    assert connection.take_events("w") == []
    assert len(connection.take_events("v")) == 1
    connection.call(queue.Pause())
    connection.call(lifecycle.Reset())
    assert connection.take_events("v") == []


def test_a_call_that_is_longer_than_a_line_is_the_callers_mistake(serve: Any) -> None:
    connection = serve({"job.updateData": nothing})
    with pytest.raises(UsageProblem, match=r"a call of job\.updateData has .* bytes"):
        connection.call(job.UpdateData(job="1", data_raw="x" * 17_000_000))
    connection.call(job.UpdateData(job="1", data_raw="x" * 1_000_000))


def test_the_log_is_kept_in_part_and_copied_in_whole(mini: Any, tmp_path: Path, eventually: Any) -> None:
    body = """
for number in range(500):
    print("line", number, file=sys.stderr)
sys.stderr.buffer.write(b"bytes \\xff\\n"); sys.stderr.flush()
ready(); hang()
"""
    copy = tmp_path / "logs" / "driver.log"
    connection = mini(body, log_file=copy)
    eventually(lambda: "bytes" in str(connection.log_tail(1)), seen=connection.log_tail)
    assert connection.log_tail(2) == ["line 499", "bytes \\xff"]
    assert len(connection.log_tail(1000)) == 200
    assert copy.read_bytes().startswith(b"line 0\nline 1\n")


def test_the_copy_of_an_endless_log_ends(
    mini: Any, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "COPIED_BYTES", 100)
    body = """
for number in range(500):
    print("line", number, file=sys.stderr)
sys.stderr.flush(); ready(); hang()
"""
    copy = tmp_path / "driver.log"
    connection = mini(body, log_file=copy)
    eventually(lambda: "499" in str(connection.log_tail(1)), seen=connection.log_tail)
    assert len(copy.read_bytes()) < 100 + len(transports.END_OF_COPY)
    assert copy.read_bytes().endswith(b"\n" + transports.END_OF_COPY)


@pytest.fixture
def patient_kit(monkeypatch: pytest.MonkeyPatch) -> float:
    """For how many seconds the kit now waits for a driver that says nothing: longer than any machine is busy."""
    monkeypatch.setattr(transports, "STACKS_SILENCE_SECONDS", 60.0)
    monkeypatch.setattr(transports, "STACKS_SECONDS", 60.0)
    return 60.0


@pytest.mark.usefixtures("patient_kit")
def test_stacks_of_slow_and_verbose_drivers_are_complete(mini: Any) -> None:
    connection = mini(
        f"""
import time
def print_stacks(*_):
    time.sleep(0.7)
    print("task one waits in", file=sys.stderr)
    time.sleep(0.7)
    print("  never_ends", file=sys.stderr)
    print({serve_module.END_OF_STACKS!r}, file=sys.stderr, flush=True)
    for number in range(300):
        print("a failed job", number, file=sys.stderr, flush=True)
signal.signal(signal.SIGQUIT, print_stacks)
for number in range(300):
    print("a job", number, file=sys.stderr, flush=True)
ready(); hear(); hang()"""
    )
    # Earlier lines of the log may still be on their way.
    assert connection.stacks()[-2:] == ["task one waits in", "  never_ends"]


def test_a_driver_that_ends_by_being_asked_where_it_stands_is_not_waited_for(mini: Any, patient_kit: float) -> None:
    connection = mini("signal.signal(signal.SIGQUIT, signal.SIG_DFL); ready(); hear(); hang()")
    started = time.monotonic()
    assert connection.stacks() == []
    assert time.monotonic() - started < patient_kit


def test_variables_and_folder_are_given_to_the_driver(mini: Any, tmp_path: Path) -> None:
    body = """
ready()
ok(hear(), id=':'.join([os.environ['WHO'], os.environ['PATH'][:1], os.getcwd()]))
hang()
"""
    connection = mini(body, env={"WHO": "kit"}, cwd=tmp_path)
    assert connection.call(queue.Add(name="n")).id == f"kit:{os.environ['PATH'][:1]}:{tmp_path}"


def test_a_driver_dies_with_a_kit_that_is_killed_hard(tmp_path: Path, script: Any, eventually: Any) -> None:
    pid_file = tmp_path / "pids"
    kit = textwrap.dedent(
        f"""
        import os, signal
        from conformance.driver.transports import ChildProcess
        connection = ChildProcess.start({script("ready(); hear(); hang()")!r}, seed=1)
        open({str(pid_file)!r} + ".part", "w").write(str(connection.pid))
        os.rename({str(pid_file)!r} + ".part", {str(pid_file)!r})
        signal.pause()
        """
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", kit], cwd=root) as process:
        eventually(pid_file.exists, seen=process.poll)
        process.send_signal(signal.SIGKILL)
    driver = Path("/proc") / pid_file.read_text()
    eventually(lambda: not driver.exists() or ") Z " in (driver / "stat").read_text(), seen=driver.exists)


def test_closing_twice_is_harmless(mini: Any) -> None:
    connection: ChildProcess = mini("ready(); hear()")
    connection.close()
    connection.close()
    connection.kill()
