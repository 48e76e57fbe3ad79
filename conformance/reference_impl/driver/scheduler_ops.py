"""Operations on the job schedulers of a queue handle."""

from __future__ import annotations

from typing import Any

from conformance.reference_impl.driver.errors import Handler
from conformance.reference_impl.driver.handles import Handles
from conformance.reference_impl.driver.views import Json, made_job, raw
from conformance.reference_impl.encoding.js_json import stringify
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.schedules.scheduler_record import SchedulerRecord, SchedulerTemplate


def scheduler_handlers(handles: Handles) -> dict[str, Handler]:
    """Handlers by the protocol's names."""

    def queue(name: str | None) -> Queue:
        return handles.client(name, Queue)

    async def upsert(name: str | None, args: Json) -> Json:
        return made_job(await queue(name).upsertJobScheduler(args["id"], args["repeat"], _template(args)))

    async def get_one(name: str | None, args: Json) -> Json:
        found = await queue(name).getJobScheduler(args["id"])
        return {"scheduler": None if found is None else _view(found)}

    async def get_all(name: str | None, args: Json) -> Json:
        page = (args.get("start", 0), args.get("end", -1), args.get("asc", False))
        return {"schedulers": [_view(found) for found in await queue(name).getJobSchedulers(*page)]}

    async def count(name: str | None, _args: Json) -> Json:
        return {"count": await queue(name).getJobSchedulersCount()}

    async def remove(name: str | None, args: Json) -> Json:
        return {"value": await queue(name).removeJobScheduler(args["id"])}

    return {
        "queue.upsertJobScheduler": upsert,
        "queue.getJobScheduler": get_one,
        "queue.getJobSchedulers": get_all,
        "queue.getJobSchedulersCount": count,
        "queue.removeJobScheduler": remove,
    }


def _template(args: Json) -> dict[str, Any]:
    """Answer what the call gives of a template; null means that it is not given."""
    template: dict[str, Any] = {option: args[option] for option in ("name", "opts") if args.get(option) is not None}
    if args.get("data_raw") is not None:
        template["data"] = raw(args["data_raw"])
    return template


def _view(found: SchedulerRecord) -> Json:
    """SchedulerView."""
    template = found.template or SchedulerTemplate()
    return {
        "key": found.key,
        "name": found.name or "",
        "next": found.next,
        "every": found.every,
        "pattern": found.pattern,
        "tz": found.tz,
        "limit": found.limit,
        "start_date": found.startDate,
        "end_date": found.endDate,
        "iteration_count": found.iterationCount,
        "offset": found.offset,
        "template_data_raw": stringify(template.data) if template.has_data else None,
        "template_opts": None if template.opts is None else dict(template.opts),
    }
