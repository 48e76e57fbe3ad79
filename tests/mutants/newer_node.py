"""Starts the driver of the newest Node with a planted defect (`newer_node.mjs`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.upstream.node import find_node
from conformance.upstream.package import HARNESS, driver_command, ensure_bullmq

NEWEST = SUPPORTED_ORACLES[-1]
DRIVER = Path(__file__).with_suffix(".mjs")


def main(defect: str) -> None:
    """Become the driver. Raises EnvironmentProblem if the release cannot be installed."""
    node = find_node(None)
    package = ensure_bullmq(node, NEWEST, announce=lambda line: print(line, file=sys.stderr))
    command, variables = driver_command(node, package)
    environment = {**os.environ, **variables, "BULLMQ_CONFORMANCE_HARNESS": str(HARNESS)}
    os.execve(command[0], [command[0], str(DRIVER), defect], environment)  # noqa: S606 - there is no shell


if __name__ == "__main__":
    main(sys.argv[1])
