"""The server loop for Python drivers: alone, loaded by its path, in a process of its own."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.driver import serve as serve_module
from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.messages import decode
from conformance.driver.ops import queue
from conformance.driver.serve import DriverServer
from conformance.driver.transports import ChildProcess

Args = dict[str, Any]

SERVE = Path(serve_module.__file__)
LOADER = f"""
import asyncio, importlib.util, os, sys, threading, time
spec = importlib.util.spec_from_file_location("serve", {str(SERVE)!r})
serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serve)

async def add(handle, args):
    print("a stray print")
    os.write(1, b"a stray write\\n")
    os.system("echo a stray child")
    return {{"id": args["name"]}}

async def pause(handle, args):
    try:
        await asyncio.sleep(3600)
    finally:
        print("cancelled", flush=True)

async def resume(handle, args):
    threading.Thread(target=time.sleep, args=(3600,)).start()  # would keep a Python process alive

async def text(handle, args):
    return {{"value": "\\ud800 lone"}}

async def bad(handle, args):
    return {{"count": {{1, 2}}}}

async def huge(handle, args):
    return {{"value": "x" * 17_000_000}}

async def lost(handle, args):
    raise asyncio.CancelledError

server = serve.DriverServer(
    client={{"name": "alone", "language": "python", "version": "1"}}, capabilities=[],
    ops={{"queue.add": add, "queue.pause": pause, "queue.resume": resume, "queue.getVersion": text, "queue.count": bad,
         "queue.getDeduplicationJobId": huge, "queue.drain": lost}})
server.run()
"""


@pytest.fixture
def alone(tmp_path: Path) -> list[str]:
    path = tmp_path / "alone.py"
    path.write_text(LOADER, "utf-8")
    return [sys.executable, "-I", "-S", str(path)]  # -S: no site-packages, so no kit


@pytest.fixture
def connection(alone: list[str]) -> Any:
    started = ChildProcess.start(alone, seed=1)
    yield started
    started.kill()


def test_it_imports_nothing_but_the_standard_library() -> None:
    for node in ast.walk(ast.parse(SERVE.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names


def test_stray_output_goes_to_the_log(connection: ChildProcess, eventually: Any) -> None:
    assert connection.call(queue.Add(name="x")).id == "x"
    expected = {"a stray print", "a stray write", "a stray child"}
    eventually(lambda: expected <= set(connection.log_tail()), seen=connection.log_tail)


@pytest.mark.parametrize("op", ["queue.pause", "queue.resume"])
def test_it_leaves_at_once_when_stdin_ends(alone: list[str], op: str, eventually: Any) -> None:
    call = {"type": "call", "id": 1, "op": op, "args": {}}
    process = subprocess.Popen(alone, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(b'{"type":"hello","protocol":1,"seed":1}\n' + json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        assert b'"ready"' in process.stdout.readline()
        if op == "queue.resume":
            assert b'"ok"' in process.stdout.readline()
        process.stdin.close()
        eventually(lambda: process.poll() is not None, seen=process.poll, within=1.5)
    finally:
        process.kill()
        process.stdin = None
        output, log = process.communicate()
    assert process.returncode == 0
    assert output == b""
    assert (b"cancelled" in log) == (op == "queue.pause")


def test_an_answer_that_is_not_json_is_reported(connection: ChildProcess) -> None:
    with pytest.raises(OperationIndeterminate, match=r"answer to queue.count is not JSON"):
        connection.call(queue.CountPending())


def test_an_answer_that_is_too_long_is_not_lost(connection: ChildProcess) -> None:
    with pytest.raises(OperationIndeterminate, match=r"\(too-long\): the answer to queue\.getDed"):
        connection.call(queue.GetDeduplicationJobId(id="x"))


def test_a_cancellation_inside_the_client_is_an_answer(connection: ChildProcess) -> None:
    with pytest.raises(OperationIndeterminate, match=r"queue\.drain was cancelled inside the client"):
        connection.call(queue.Drain())


def test_a_lone_surrogate_does_not_break_the_line(connection: ChildProcess) -> None:
    assert connection.call(queue.GetVersion()).value == "? lone"


def test_lines_outside_of_the_protocol_are_only_logged(connection: ChildProcess, eventually: Any) -> None:
    for line in (b"\n", b"{}\n", b'{"type":"call"}\n', b"[]\n", b'"x"\n'):
        connection._send(line)
    assert connection.call(queue.Add(name="y")).id == "y"
    eventually(lambda: "not a line of the protocol" in str(connection.log_tail()), seen=connection.log_tail)


def test_a_line_that_is_too_long_ends_it(alone: list[str]) -> None:
    done = subprocess.run(alone, input=b"x" * (2**24 + 1), capture_output=True, timeout=20, check=False)
    assert done.returncode == 1


def test_calls_start_in_order_each_under_its_own_clock() -> None:
    clock: list[int | None] = [None]
    seen: list[int | None] = []

    async def pause(_handle: str | None, _args: Args) -> None:
        seen.append(clock[-1])

    server = DriverServer(
        client={"name": "a", "language": "b", "version": "c"},
        capabilities=["clock"],
        ops={"queue.pause": pause},
        on_clock=clock.append,
    )
    lines: list[bytes] = []

    async def run() -> None:
        answered = asyncio.Event()

        def write(line: bytes) -> None:
            lines.append(line)
            if len(lines) == 2:
                answered.set()

        server.attach(write)
        for number in (1, 2):  # both are there before the first one starts
            call: Args = {"type": "call", "id": number, "op": "queue.pause", "args": {}, "now_ms": number * 1000}
            server.receive(json.dumps(call).encode())
        await asyncio.wait_for(answered.wait(), 10)

    asyncio.run(run())
    assert seen == [1000, 2000]
    assert [getattr(decode(line.rstrip()), "id", None) for line in lines] == [1, 2]


def test_an_exception_is_reported_and_traced_in_the_log(serve: Any, capsys: Any) -> None:
    async def add(_handle: str | None, _args: Args) -> None:
        raise LookupError("no such thing")

    connection = serve({"queue.add": add})
    with pytest.raises(OperationFailed, match=r"\(other\): LookupError: no such thing"):
        connection.call(queue.Add(name="n"))
    assert "Traceback" in capsys.readouterr().err
