"""A worker of the reference client in a process of its own, which a test can freeze or kill.

`python -m tests.watch.worker_program PORT PREFIX QUEUE JOB_MS OPTIONS`, where OPTIONS are the worker's, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from conformance.reference_impl import Worker


async def main(port: str, prefix: str, queue: str, job_ms: str, options: str) -> None:
    async def process(_job: Any, _token: Any) -> None:
        await asyncio.sleep(int(job_ms) / 1000)

    connection = {"host": "127.0.0.1", "port": int(port)}
    worker = Worker(queue, process, {"connection": connection, "prefix": prefix, **json.loads(options)})
    worker.on("error", lambda _error: None)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
