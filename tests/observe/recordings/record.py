"""Record what real BullMQ 5.62.0 leaves in Redis, as data for tests that need no Node.

Usage: python record.py FOLDER_WITH_NODE_MODULES REDIS_PORT

Runs `states.mjs` four times on an empty Redis of your own: twice with the real clock, twice with a frozen difference.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from redis import Redis

from conformance.observe.reader import read_raw

HERE = Path(__file__).resolve().parent
RUNS = (
    ("real_a", "kit:{1}", ""),
    ("real_b", "other", ""),
    ("frozen_a", "kit:{2}", "frozen"),
    ("frozen_b", "b", "frozen"),
)


def main(folder: str, port: str) -> None:
    """Write one JSON file per run: prefix, server time, and every key."""
    with Redis(port=int(port)) as client:
        for name, prefix, clock in RUNS:
            subprocess.run(["node", str(HERE / "states.mjs"), folder, prefix, port, *filter(None, [clock])], check=True)
            taken_ms, keys = read_raw(client, prefix)
            recording = {"prefix": prefix, "taken_ms": taken_ms, "keys": [dataclasses.asdict(key) for key in keys]}
            text = json.dumps(recording, separators=(",", ":"))
            for here in (str(HERE), str(Path(folder).resolve())):
                text = text.replace(here, "/recorded")  # stack traces name the machine's folders
            (HERE / f"{name}.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
