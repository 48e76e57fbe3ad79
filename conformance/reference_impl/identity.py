"""Names by which logs and metrics tell workers apart. They play no part in locks, and may collide without harm."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from conformance.reference_impl.errors import InvalidArgument


def new_worker_id() -> str:
    """Answer `{hostname}-{pid}-{six hex digits}`."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def worker_id_of(opts: Mapping[str, Any]) -> str:
    """Answer the option `workerId`, or a new id. Raises InvalidArgument where it is no text."""
    chosen = opts.get("workerId")
    if chosen is None:
        return new_worker_id()
    if not isinstance(chosen, str) or not chosen:
        raise InvalidArgument("workerId must be a text that is not empty", field="workerId", constraint="a text")
    return chosen
