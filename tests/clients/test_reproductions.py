"""Runs the script of a bug report: in an empty folder with only the client installed, and with the client's driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.environment.python_environments import PythonPackages, ensure_python_environment
from conformance.findings import RedisReading
from conformance.gate.client_language import language_text
from conformance.gate.records import StepRecord
from conformance.report.bug_report import bug_reports
from conformance.report.run_file import Run
from conformance.report.summary import summarise
from conformance.servers import open_server
from tests.report.sample_runs import SAMPLE_ROWS, finding, footer, header, party, scenario

from .conftest import FOLDER

OPENED = StepRecord(by="both", do="open", on="queue-1", args={"role": "queue", "queue": "q", "options": {}})


def step(do: str, **args: object) -> StepRecord:
    return StepRecord(by="both", do=do, on="queue-1", args=args)


ADDED = step("queue.add", name="job", data_raw="{}", opts={})
VERSION = RedisReading(command=["HGET", "<prefix>:q:meta", "version"], expected="bullmq:5.62.0", actual="(nil)")
WAIT = RedisReading(command=["LRANGE", "<prefix>:q:wait", "0", "-1"], expected="[]", actual='["1"]')


@pytest.mark.parametrize(
    ("steps", "reading"),
    [
        pytest.param([OPENED, ADDED], VERSION, id="meta.version is missing"),
        pytest.param([OPENED, ADDED, step("queue.pause")], WAIT, id="paused jobs are in wait"),
    ],
)
def test_the_pasted_script_shows_the_difference(steps: list[StepRecord], reading: RedisReading, tmp_path: Path) -> None:
    client = party(ops=["open", "queue.add", "queue.pause"])
    text = bug_report(steps, [reading], client=client, reproduction=language_text(FOLDER))
    python = ensure_python_environment(
        "python-official", PythonPackages.pinned(FOLDER / "requirements.txt"), announce=print
    )
    command = " ".join(reading.command).replace("<prefix>", "bullmq-repro")
    printed = output_of(text, tmp_path, python, "-I", "reproduction.py")
    assert f"{command}\n  expected  {reading.expected}\n  actual    {reading.actual}\n" in printed


def bug_report(steps: list[StepRecord], readings: list[RedisReading], **changes: Any) -> str:
    """Return the only bug report of a run whose only scenario has these steps, and a finding with these readings."""
    found = finding("add.plain.waits", "meta.version", "1", "2", redis=readings)
    record = scenario("a", "fail", "add.plain.waits", findings=[found], steps=steps)
    run = Run(header=header(**changes), scenarios=(record,), footer=footer())
    [text] = bug_reports(summarise(run, SAMPLE_ROWS)).values()
    return text


def output_of(text: str, folder: Path, *command: str | Path) -> str:
    """Return what the script of a bug report prints, with a Redis of its own."""
    [script] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (folder / "reproduction.py").write_text(script, "utf-8")
    with open_server(None, announce=print) as server:
        host, _, port = server.nodes[0].rpartition(":")
        env = {"PATH": os.environ["PATH"], "REDIS_HOST": host, "REDIS_PORT": port, "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


IN_ORDER = RedisReading(command=["LRANGE", "<prefix>:q:wait", "0", "-1"], expected='["2", "1"]')
SECOND = RedisReading(command=["HGET", "<prefix>:q:2", "name"], expected="job", actual="(nil)")
UUID = "[0-9a-f-]{36}"


@pytest.mark.parametrize(
    ("module", "base", "waiting"),
    [
        pytest.param("conformance.reference_impl.driver", "bullmq-repro:q", '"2", "1"', id="healthy"),
        pytest.param("conformance.mutants.driver add.right-end", "bullmq-repro:q", '"1", "2"', id="wrong order"),
        pytest.param(
            "tests.gate.limited_driver --ids uuid --fixed-prefix bull",
            "bull:q-bullmq-repro",
            f'"{UUID}", "{UUID}"',
            id="other names",
        ),
    ],
)
def test_a_script_drives_the_driver_of_any_client(module: str, base: str, waiting: str, tmp_path: Path) -> None:
    added = [msgspec.structs.replace(ADDED, client=json.dumps({"id": str(number)})) for number in (1, 2)]
    command = [sys.executable, "-m", *module.split()]
    client = party(ops=["open", "queue.add", "queue.getJob"], command=command)
    text = bug_report([OPENED, *added, step("queue.getJob", job="2")], [IN_ORDER, SECOND], client=client)
    assert f"run `python3 reproduction.py path/to/{Path(sys.executable).name} -m {module}`" in text
    printed = output_of(text, tmp_path, sys.executable, "reproduction.py", *command)
    assert re.search(
        rf"^LRANGE {base}:wait 0 -1\n  Node    \[\"2\", \"1\"\]\n  client  \[{waiting}\]$", printed, re.MULTILINE
    )
    assert re.search(rf"^HGET {base}:(2|{UUID}) name\n  Node    job\n  client  job$", printed, re.MULTILINE)
    assert re.search(rf'^  4 .*\n      answer .*"id": "(2|{UUID})"', printed, re.MULTILINE)
