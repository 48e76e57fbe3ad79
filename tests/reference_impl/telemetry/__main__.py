"""Traces across languages, live: `make telemetry`. It needs npm, for bullmq-otel and the SDK of OpenTelemetry.

Node takes the recorded steps again; then a job crosses in both directions, and both sides must be in one trace. The
lock file leaves out the optional native helpers of msgpackr, so that it holds on every system.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import shutil
import sys
from collections.abc import Awaitable, Callable

from conformance.reference_impl.scripts.runner import official_scripts
from conformance.servers import RedisInstance, open_server
from conformance.upstream.node import find_node, run_npm
from conformance.upstream.package import cache_folder
from tests.reference_impl.conftest import until
from tests.reference_impl.telemetry.node_peer import HERE, NodePeer, record, recorded
from tests.reference_impl.telemetry.spans import SeenSpan, compared
from tests.reference_impl.telemetry.steps import TracedProgram, add_one, work_one


def node_peer(server: RedisInstance) -> NodePeer:
    """Install what Node needs, once for each lock file, and return Node on a fresh prefix."""
    node = find_node()
    lock = (HERE / "package-lock.json").read_bytes()
    packages = cache_folder() / f"telemetry-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not (packages / "complete").exists():
        print(f"Installing bullmq-otel with npm into {packages} ...", flush=True)
        packages.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, packages)
        run_npm(node, packages, "ci", "--omit=optional", "--ignore-scripts")
        (packages / "complete").touch()
    return NodePeer(node.path, packages, server.nodes[0], server.fresh_prefix())


def broken_crossings(adder: list[SeenSpan], worker: list[SeenSpan]) -> list[str]:
    """A line for each missing link of a crossing's trace: request, add, process, inside."""
    spans = {span.name: span for span in [*adder, *worker]}
    chain = ["request", "add q.crossing", "process q", "inside"]
    missing = [name for name in chain if name not in spans]
    if missing:
        return [f"no span {name}" for name in missing]
    return [
        f"{child} is not below {parent}"
        for parent, child in itertools.pairwise(chain)
        if (spans[child].parent, spans[child].trace) != (spans[parent].id, spans[parent].trace)
    ]


def main() -> int:
    """Run everything; returns 1 if a comparison fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record what Node does, instead of comparing it")
    chosen = parser.parse_args()
    with open_server(None, announce=print) as server:
        troubles = [*_steps(server, write=chosen.write), *_crossings(server)]
    print("\n".join(troubles) or "one trace in both directions; Node does what is recorded")
    return 1 if troubles else 0


def _steps(server: RedisInstance, *, write: bool) -> list[str]:
    peer = node_peer(server)
    trees = compared(*peer.run("steps"), peer.prefix)
    if write:
        record(trees)
    return [] if trees == recorded() else ["Node does not do what is recorded: `make telemetry WRITE=1`, git diff"]


def _crossings(server: RedisInstance) -> list[str]:
    to_python, to_node = node_peer(server), node_peer(server)
    added_by_node, _ = to_python.run("add")
    worked_by_python = asyncio.run(_spans_of(work_one, to_python))
    added_by_python = asyncio.run(_spans_of(add_one, to_node))
    worked_by_node, _ = to_node.run("work")
    return [
        *(f"Node to Python: {what}" for what in broken_crossings(added_by_node, worked_by_python)),
        *(f"Python to Node: {what}" for what in broken_crossings(added_by_python, worked_by_node)),
    ]


async def _spans_of(act: Callable[[TracedProgram], Awaitable[None]], peer: NodePeer) -> list[SeenSpan]:
    program = TracedProgram({"nodes": [peer.address]}, peer.prefix, official_scripts(), until)
    await act(program)
    return program.spans


if __name__ == "__main__":
    sys.exit(main())
