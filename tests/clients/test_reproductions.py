"""Runs the script of a bug report in an empty folder, with only the client installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

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
    found = finding("add.plain.waits", "meta.version", reading.expected, reading.actual, redis=[reading])
    record = scenario("a", "fail", "add.plain.waits", findings=[found], steps=steps)
    client = party(ops=["open", "queue.add", "queue.pause"])
    shown = header(client=client, reproduction=language_text(FOLDER))
    run = Run(header=shown, scenarios=(record,), footer=footer())
    [text] = bug_reports(summarise(run, SAMPLE_ROWS)).values()
    [script] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "reproduction.py").write_text(script, "utf-8")
    python = ensure_python_environment(
        "python-official", PythonPackages.pinned(FOLDER / "requirements.txt"), announce=print
    )
    with open_server(None, announce=print) as server:
        host, _, port = server.nodes[0].rpartition(":")
        done = subprocess.run(
            [str(python), "-I", "reproduction.py"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "REDIS_HOST": host, "REDIS_PORT": port},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    command = " ".join(reading.command).replace("<prefix>", "bullmq-repro")
    assert f"{command}\n  expected  {reading.expected}\n  actual    {reading.actual}\n" in done.stdout
