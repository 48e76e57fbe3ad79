"""What the client hands to its user, as the answers of the driver protocol."""

from __future__ import annotations

import json
import re
from typing import Any

from bullmq import Job
from kit import OpError

Json = dict[str, Any]

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(text: str) -> Any:
    """JSON text of the kit as the value that a user would give to the client. Raises OpError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OpError("invalid-argument", f"this client takes values, and the text is not JSON: {error}") from error


def json_text(value: Any) -> str:
    """Return a value of the client as JSON text; half a surrogate pair can only be an escape in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def job_view(job: Job) -> Json:
    """Show a Job object. The client keeps no name of the worker that processed it."""
    return {
        "id": str(job.id),
        "name": "" if job.name is None else str(job.name),
        "data_raw": json_text(job.data),
        "opts": job.opts,
        "timestamp": job.timestamp,
        "delay": job.delay,
        "priority": job.priority,
        "attempts_made": job.attemptsMade,
        "attempts_started": job.attemptsStarted,
        "stalled_counter": job.stalledCounter,
        "progress_raw": json_text(job.progress),
        "returnvalue_raw": json_text(job.returnvalue),
        "failed_reason": job.failedReason,
        "stacktrace_length": len(job.stacktrace),
        "processed_on": job.processedOn,
        "finished_on": job.finishedOn,
        "parent_key": job.parentKey,
        "deduplication_id": job.deduplication_id,
    }


def maybe_job(job: Job | None) -> Json:
    """Answer operations that may find no job."""
    return {"job": None if job is None else job_view(job)}


def flow_view(node: Json) -> Json:
    """Show a node of FlowProducer.add: a Job object and its children."""
    job, children = node["job"], node.get("children", [])
    return {"id": str(job.id), "queue": job.queue.name, "children": [flow_view(child) for child in children]}


def scheduler_view(scheduler: Json) -> Json:
    """Show a record of Queue.getJobScheduler."""
    template = scheduler.get("template") or {}
    return {
        "key": scheduler["key"],
        "name": scheduler.get("name") or "",
        "next": scheduler.get("next"),
        "every": scheduler.get("every"),
        "pattern": scheduler.get("pattern"),
        "tz": scheduler.get("tz"),
        "limit": scheduler.get("limit"),
        "start_date": scheduler.get("startDate"),
        "end_date": scheduler.get("endDate"),
        "iteration_count": scheduler.get("iterationCount"),
        "offset": scheduler.get("offset"),
        "template_data_raw": json_text(template["data"]) if "data" in template else None,
        "template_opts": template.get("opts"),
    }
