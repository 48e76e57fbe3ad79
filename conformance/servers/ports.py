"""Ports for servers that the kit starts."""

from __future__ import annotations

import random
import socket
from contextlib import closing

from conformance.problems import EnvironmentProblem

HOST = "127.0.0.1"
PORTS = range(10_000, 22_768)
"""Below the ports of outgoing connections, so that a killed server finds its port free again; + 10000 for a bus."""
BUS = 10_000
"""A cluster node talks to the others on its port plus this."""
TRIES = 400


def free_port(*, cluster: bool) -> int:
    """Find a port that nobody listens on at this moment, and for a cluster node its bus port neither.

    Raises EnvironmentProblem if all are taken.
    """
    for port in random.SystemRandom().sample(PORTS, k=TRIES):
        if _is_free(port) and (not cluster or _is_free(port + BUS)):
            return port
    raise EnvironmentProblem(
        f"no port between {PORTS.start} and {PORTS.stop} is free on {HOST}", hint="is something using up the ports?"
    )


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As Redis does: without this, a port whose last connection has just ended looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
