"""`peer.mjs` as a child process: real BullMQ for Node.js with bullmq-otel, and its recorded results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.reference_impl.telemetry.spans import SeenSpan, seen_in_node

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE / "recorded.json"
"""The result of `compared` for the steps in Node.js; `make telemetry WRITE=1` writes it again."""

_WITHIN_S: Final = 120


@dataclass(frozen=True)
class NodePeer:
    """Node with the packages of `package-lock.json`, and where it finds its queues."""

    node: Path
    packages: Path
    address: str
    prefix: str

    def run(self, role: str) -> tuple[list[SeenSpan], dict[str, Any]]:
        """Run `steps`, `add` a job, or `work` (process one); returns the spans, and the state of Redis."""
        command = [str(self.node), str(HERE / "peer.mjs"), str(self.packages), self.address, self.prefix, role]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        assert run.returncode == 0, run.stderr
        result = json.loads(run.stdout.splitlines()[-1])
        return seen_in_node(result["spans"]), result["seen"]


def recorded() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return read


def record(comparison: Mapping[str, Any]) -> None:
    """Write the comparison: a line for each tree of spans."""
    trees = ",\n".join(json.dumps(tree) for tree in comparison["spans"])
    seen = json.dumps(comparison["seen"], indent=1)
    RECORDED.write_text(f'{{"spans": [\n{trees}\n],\n"seen": {seen}}}\n', "utf-8")
