"""Operations for the view of a library's own user: refusals, metrics and logs, of objects opened with `library`."""

from __future__ import annotations

import importlib.util

from conformance.reference_impl.driver.handles import ReferenceHandles
from conformance.reference_impl.driver.views import Handler, Json, new_job
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.queue import Queue


def is_complete() -> bool:
    """Whether the packages for all of it are installed (extra `metrics`)."""
    return importlib.util.find_spec("prometheus_client") is not None


def library_handlers(handles: ReferenceHandles) -> dict[str, Handler]:
    """Handlers of the operations, by the protocol's names."""

    async def refuses(name: str | None, args: Json) -> Json:
        job = new_job(args)
        try:
            await handles.client(name, Queue).add(job["name"], job["data"], job["opts"])
        except InvalidArgument as refusal:
            return {"message": str(refusal)}
        return {"message": ""}

    async def scrape(name: str | None, _args: Json) -> Json:
        return {"text": handles.named(name).kept().metrics()}

    async def read_logs(name: str | None, _args: Json) -> Json:
        return {"lines": handles.named(name).kept().lines}

    return {"queue.refuses": refuses, "metrics.scrape": scrape, "logs.read": read_logs}
