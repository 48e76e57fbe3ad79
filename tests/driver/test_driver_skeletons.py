"""Unchanged skeletons pass the handshake and the probe; the command line writes and checks them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from conformance.cli.driver import driver
from conformance.driver.authoring import SKELETONS, check_driver, write_skeleton
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.probe import probe_honesty
from conformance.driver.transports import ChildProcess
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance
from conformance.upstream.node import find_node
from tests.conftest import Missing

PROGRAMS = {
    "python": sys.executable,
    "go": "go",
    "rust": "cargo",
    "java": "javac",
    "php": "php",
    "ruby": "ruby",
    "csharp": "dotnet",
    "elixir": "elixir",
}

PRINTS = {
    "python": "print('chatty')",
    "node": "console.log('chatty'); process.stdout.write('chatty\\n');",
    "go": 'fmt.Println("chatty")',
    "rust": 'println!("chatty");',
    "java": 'System.out.println("chatty");',
    "php": 'echo "chatty\\n";',
    "ruby": "puts 'chatty'; system('echo chatty')",
    "csharp": 'Console.WriteLine("chatty");',
    "elixir": 'IO.puts("chatty")',
}
"""Prints of a client while it opens a handle."""

CLOSE_STARTS = {
    "go": 'd.emit(call.Handle, "start", struct{}{})',
    "rust": 'self.output.emit(&call.handle, "start", json!({}));',
    "java": 'emit((String) call.get("handle"), "start", Map.of());',
    "ruby": "emit(call['handle'], 'start')",
    "csharp": 'Send(new JsonObject { ["type"] = "event", ["handle"] = (string?)call["handle"], ["name"] = "start" });',
    "elixir": 'emit(call["handle"], "start")',
}
"""Code that reports the start of `close`, in languages whose skeleton runs each call in its own thread."""

CLOSES = 200
"""Enough calls that their threads would not start in order."""

BUILD_SECONDS = 600

Skeleton = tuple[list[str], Path]


@pytest.fixture(params=sorted(SKELETONS))
def chatty_skeleton(request: pytest.FixtureRequest, tmp_path: Path, missing: Missing) -> Skeleton:
    """The command and the folder of a skeleton, built if needed; its `open` prints to stdout."""
    skeleton = SKELETONS[request.param]
    program = str(find_node().path) if skeleton.language == "node" else shutil.which(PROGRAMS[skeleton.language])
    if program is None:
        missing(skeleton.language, f"{PROGRAMS[skeleton.language]} is not installed")
    folder = tmp_path / skeleton.language
    files, prints = write_skeleton(skeleton.language, folder), PRINTS[skeleton.language]
    put_in(files, r"create the queue|connect to", prints)
    if skeleton.language in CLOSE_STARTS:
        put_in(files, "let the worker", CLOSE_STARTS[skeleton.language])
    if skeleton.build:
        done = subprocess.run(
            skeleton.build, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
    start, *words = skeleton.command
    isolated = ["-I", "-S"] if skeleton.language == "python" else []  # it has to run where the kit is not installed
    return [str(folder / start) if "/" in start else shutil.which(start) or program, *isolated, *words], folder


def put_in(files: list[Path], place_of: str, line: str) -> None:
    """Insert a line at a place marked "Your client:"."""
    for path in files:
        text = path.read_text("utf-8")
        place = re.search(rf"^ *\t*(?=(#|//) Your client: ({place_of}))", text, re.MULTILINE)
        if place:
            path.write_text(f"{text[: place.start()]}{place[0]}{line}\n{text[place.start() :]}", "utf-8")
            return
    raise AssertionError(f"no place to {place_of} in {files}")


@pytest.mark.slow
def test_a_skeleton_shakes_hands_is_honest_passes_the_check_and_may_print(
    chatty_skeleton: Skeleton, address: RedisAddress, redis: Any, prefix: str
) -> None:
    command, folder = chatty_skeleton
    connection = ChildProcess.start(command, seed=1, cwd=folder)
    assert sorted(connection.ready.ops) == ["close", "open", "reset"]
    notes = probe_honesty(connection, address=address, redis=redis, prefix=prefix, seed=1)
    assert notes == ["queue.add is not declared, so no write of this driver could be checked in Redis"]
    assert connection.call_raw("close", {"force": False}, handle="unknown").status == "fail"
    opening = {"role": "queue", "queue": "q", "prefix": prefix, "redis": msgspec.to_builtins(address)}
    assert connection.call_raw("open", opening, handle="chatty").status == "ok"
    eventually(lambda: "chatty" in connection.log_tail())
    assert connection.close() is True
    if folder.name in CLOSE_STARTS:
        handles = [f"worker {number}" for number in range(CLOSES)]
        assert start_order(command, folder, handles) == handles
    steps = check_driver(
        lambda: ChildProcess.start(command, seed=1, cwd=folder), address=address, redis=redis, prefix=prefix, seed=1
    )
    assert [step.name for step in steps if not step.ok] == []
    assert [step.name for step in steps if step.tried] == ["handshake", "honesty", "open", "reset", "end"]


def start_order(command: list[str], folder: Path, handles: list[str]) -> list[str]:
    """The handles in the order in which their `close` started, if all calls can be read at once."""
    calls = [
        {"type": "call", "id": number, "op": "close", "handle": handle, "args": {"force": False}, "deadline_ms": 5000}
        for number, handle in enumerate(handles)
    ]
    lines = [{"type": "hello", "protocol": 1, "seed": 1}, *calls]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines))
        process.stdin.flush()
        names, answered = [], 0
        while answered < len(calls):
            line = json.loads(process.stdout.readline())
            answered += line["type"] == "result"
            names += [line["handle"]] if line["type"] == "event" else []
        process.stdin.close()
    return names


def eventually(probe: Callable[[], bool]) -> None:
    """Wait until the condition holds: another thread reads the log."""
    deadline = time.monotonic() + 10
    while not probe():
        assert time.monotonic() < deadline, "waited 10 s for the print in the log"
        time.sleep(0.01)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text("mine")
    with pytest.raises(UsageProblem, match=r"driver.py already exists — choose another folder"):
        write_skeleton("python", tmp_path)
    assert (tmp_path / "driver.py").read_text() == "mine"
    assert not (tmp_path / "driver_server.py").exists()


def test_a_language_without_a_skeleton(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no skeleton for 'cobol' — use one of python, node, go, rust, java"):
        write_skeleton("cobol", tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write to"):
        write_skeleton("node", tmp_path / "file" / "inside")


def test_the_python_skeleton_passes_the_linter_of_the_kit(tmp_path: Path) -> None:
    """In the tree it is linted like the kit; only its examples are code in comments, until they are filled in."""
    write_skeleton("python", tmp_path)
    place = ["--stdin-filename", "conformance/clients/mine/driver.py", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--quiet", "--ignore", "ERA001", *place],
        input=(tmp_path / "driver.py").read_text("utf-8"),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == ""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(driver, list(arguments))


def check(server: RedisInstance, *command: str) -> Result:
    return invoke("check", "--redis", server.url, "--", *command)


def test_new_says_what_it_wrote_and_what_to_do_next(tmp_path: Path) -> None:
    result = invoke("new", "go", "--out", str(tmp_path / "mine"))
    assert result.exit_code == 0
    assert "main.go" in result.output
    assert "go build -o driver . && bullmq-conformance driver check -- ./driver" in result.output
    assert (tmp_path / "mine" / "go.mod").is_file()


def test_new_writes_into_a_folder_named_after_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("new", "node").exit_code == 0
    assert (tmp_path / "node-driver" / "driver.mjs").is_file()
    again = invoke("new", "node")
    assert isinstance(again.exception, UsageProblem)


def test_check_prints_every_step_and_what_to_do_next(server: RedisInstance, tmp_path: Path) -> None:
    write_skeleton("python", tmp_path / "p")
    result = check(server, sys.executable, str(tmp_path / "p" / "driver.py"))
    assert result.exit_code == 0, result.output
    assert "my-client 0.0.0 (python)" in result.output
    assert "not tried: queue.add not declared" in result.output
    assert "next: declare queue.add" in result.output
    assert re.search(r"a run can decide 0 of \d+ requirements with it", result.output)
    assert re.search(r"with queue\.add you unlock \d{2,} requirements", result.output)
    assert "the driver works as far as it declares" in result.output
    assert re.search(r"… and \d{2} more: add --all", result.output)
    whole = invoke("check", "--redis", server.url, "--all", "--", sys.executable, str(tmp_path / "p" / "driver.py"))
    assert len(re.findall("you unlock", result.output)) == 3
    assert len(re.findall("you unlock", whole.output)) > 20
    assert "the role flow (flow.add, flow.addBulk, flow.getFlow)" in whole.output


LOOP = """
while True:
    call = hear()
    {answer} if call['op'] in OPS else unsupported(call)
"""


BASICS = "OPS = ('open', 'close', 'reset', 'queue.add')\nready(*OPS)"
DRIVERS = [
    ("OPS = ('open',)\nready(*OPS)" + LOOP.format(answer="ok(call)"), 1, "not yet: handshake"),
    (BASICS + LOOP.format(answer="ok(call, id='1')"), 3, "no hash"),
    ("print('[bold]hello[/nonsense]'); sys.stdout.flush(); hang()", 3, "[bold]hello[/nonsense]"),
]


@pytest.mark.parametrize("driver_and_outcome", DRIVERS, ids=["not complete", "dishonest", "prints markup"])
def test_check_ends_with_the_right_exit_code(
    server: RedisInstance, script: Any, redis: Any, driver_and_outcome: tuple[str, int, str]
) -> None:
    body, exit_code, words = driver_and_outcome
    result = check(server, *script(body))
    assert result.exit_code == exit_code, result.output
    assert words in result.output
    assert redis.dbsize() == 0


def test_check_takes_the_options_of_the_drivers_command(server: RedisInstance) -> None:
    result = check(server, sys.executable, "-c", "import sys; sys.exit(5)", "--redis", "mine", "--help")
    assert result.exit_code == 3
    assert "exit code 5" in result.output


def test_check_without_a_command_is_wrong_usage() -> None:
    result = invoke("check")
    assert result.exit_code == 2
    assert "one driver is needed" in result.output


def test_check_takes_a_client_by_name(server: RedisInstance) -> None:
    result = invoke("check", "--redis", server.url, "--client", "reference")
    assert result.exit_code == 0, result.output
    assert "the driver works as far as it declares" in result.output
    assert "it declares everything that counts" in result.output


def test_check_takes_one_driver_only() -> None:
    result = invoke("check", "--client", "reference", "--", "./driver")
    assert result.exit_code == 2
    assert "one driver is needed" in result.output


def test_check_with_a_malformed_redis_is_wrong_usage() -> None:
    result = invoke("check", "--redis", "http://x", "--", "true")
    assert isinstance(result.exception, UsageProblem)
