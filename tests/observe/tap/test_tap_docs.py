"""The examples of docs/reference/tap.md run, and what goes wrong inside the tap is reported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.rules import Hold, Trigger
from conformance.observe.tap.tap import Tap
from conformance.servers import RedisInstance

from .conftest import Wire

ROOT = Path(__file__).parents[3]


def test_the_example_runs(server: RedisInstance, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "tap.md").read_text("utf-8")
    found = re.search(r"## Stand-alone.*?```python\n(.*?)```", page, re.DOTALL)
    assert found
    program = tmp_path / "example.py"
    program.write_text(found[1], "utf-8")
    command = [sys.executable, str(program), server.nodes[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "GET greeting -> $5 hello" in done.stdout


def test_an_error_inside_the_tap_is_not_swallowed(server: RedisInstance) -> None:
    def broken(_: CommandRecord) -> bool:
        raise ZeroDivisionError

    tap = Tap(server.nodes[0]).start()
    with Wire(tap.address) as wire, tap.when(Trigger(where=broken), Hold()):
        wire.send("PING")
        assert wire.rest() == b""
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        tap.close()
    tap.close()
