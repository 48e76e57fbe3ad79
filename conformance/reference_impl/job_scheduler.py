"""Job schedulers: factories of jobs that repeat (upstream `src/classes/job-scheduler.ts`).

A scheduler always has one job ahead. The worker that fetches this job makes the next one in the same step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from conformance.protocol import keys as names
from conformance.reference_impl import js_values
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.record import JobOwner
from conformance.reference_impl.js_values import truthy
from conformance.reference_impl.recurrence import (
    RepeatMapping,
    RepeatStrategy,
    SchedulerRecord,
    ask_strategy,
    cron_strategy,
    date_of,
    is_over,
    next_count,
    read_scheduler,
    read_schedulers,
)
from conformance.reference_impl.scripts.add import SchedulerIteration
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.job_context import following

logger = logging.getLogger("bullmq")

JobOptions = Mapping[str, Any]


class JobScheduler:
    """The schedulers of one queue, on the connection of a queue or worker.

    `opts["settings"]["repeatStrategy"]` of the owner replaces the cron patterns.
    """

    def __init__(self, owner: JobOwner) -> None:
        self._owner = owner
        settings = owner.opts.get("settings") or {}
        self._strategy: RepeatStrategy = settings.get("repeatStrategy") or cron_strategy(owner.clock)

    async def upsertJobScheduler(
        self,
        jobSchedulerId: str,
        repeatOpts: RepeatMapping,
        jobName: str,
        jobData: Any,
        opts: JobOptions,
        *,
        override: bool,
        producerId: str | None = None,
    ) -> Job | None:
        """Store a scheduler (`override`), or only its next job, which follows the job `producerId`.

        None if there is no next job: the limit is reached, endDate has passed, the pattern is never due again, or
        another client has already made it. A pending job is replaced and keeps its time. Raises InvalidArgument, and
        ScriptError: scheduler-collision.
        """
        _validate(repeatOpts)
        count = next_count(repeatOpts)
        if count is None or is_over(repeatOpts, self._owner.clock.now_ms()):
            return None
        due = await self._next_due(repeatOpts, jobName, opts)
        if not due and not truthy(repeatOpts.get("every")):
            return None
        with self._owner.trace(SpanKind.PRODUCER, "add", f"{self._owner.keys.queue}.{jobName}") as span:
            telemetry = following(opts, span.metadata)
            # Redis shows the order of the options: `repeat` comes first, as in Node.js.
            traced = opts if telemetry is None else {**opts, "repeat": None, "telemetry": telemetry}
            job_options = self._iteration_options(jobSchedulerId, repeatOpts, traced, due, count)
            iteration = SchedulerIteration(
                jobSchedulerId, due, js_values.stringify(jobData), options.encode(job_options), producerId
            )
            job_id: str | None
            if override:
                schedule, template = _schedule(repeatOpts, jobName), options.encode(opts)
                # The script's delay counts: it may have chosen another slot than this client.
                job_id, job_options["delay"] = await self._owner.scripts.add_job_scheduler(
                    iteration, schedule, template
                )
            else:
                job_id = await self._owner.scripts.update_job_scheduler(iteration)
            if job_id is None:
                return None
            span.setAttributes({attributes.JOB_SCHEDULER_ID: jobSchedulerId, attributes.JOB_ID: job_id})
            return self._job(jobName, jobData, job_options, job_id)

    async def removeJobScheduler(self, jobSchedulerId: str) -> bool:
        """Forget a scheduler; False where there was none. Its delayed job is removed too, a waiting one stays."""
        return await self._owner.scripts.remove_job_scheduler(jobSchedulerId)

    async def getScheduler(self, jobSchedulerId: str) -> SchedulerRecord | None:
        """Return a scheduler, or None."""
        record, following = await self._owner.scripts.get_job_scheduler(jobSchedulerId)
        return read_scheduler(jobSchedulerId, record, js_values.parse_int(following))

    async def getJobSchedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Return schedulers by rank, the one that is due last first, unless `asc`."""
        return await read_schedulers(self._owner, start, end, asc=asc)

    async def getSchedulersCount(self) -> int:
        """Return the number of schedulers."""
        return int(await self._owner.connection.command("ZCARD", self._repeat))

    async def _next_due(self, repeat: RepeatMapping, name: str, opts: JobOptions) -> int | None:
        """When a pattern is due after the job before, or after now; None for intervals, which the script computes."""
        if not truthy(repeat.get("pattern")):
            return None
        # The later of both: a worker that is ahead of its schedule must not compute the same run again.
        now = max(int(opts.get("prevMillis") or 0), self._owner.clock.now_ms())
        due = await ask_strategy(self._strategy, now, repeat, name)
        return None if due is None else max(due, now)

    def _iteration_options(
        self, scheduler_id: str, repeat: RepeatMapping, opts: JobOptions, due: int | None, count: int
    ) -> dict[str, Any]:
        """Options of the next job. The script fills in the values that are not known yet."""
        now = self._owner.clock.now_ms()
        merged = {
            **opts,
            "repeat": _iteration_repeat(repeat, count),
            "jobId": f"repeat:{scheduler_id}:{'undefined' if due is None else due}",
            # Not known before the script has computed the slot; Node.js sends NaN as well.
            "delay": math.nan if due is None else max(due - now, 0),
            "timestamp": now,
        }
        if due is None:
            merged.pop("prevMillis", None)
        else:
            merged["prevMillis"] = due
        merged["repeatJobKey"] = scheduler_id
        return merged

    def _job(self, name: str, data: Any, opts: JobOptions, job_id: str) -> Job:
        repeat = {
            option: value for option, value in opts["repeat"].items() if value is not None or option not in _DATES
        }
        return Job(self._owner, name, data, {**opts, "repeat": repeat}, job_id)

    @property
    def _repeat(self) -> str:
        return self._owner.keys.key(names.REPEAT)


_DATES = ("startDate", "endDate")


def _validate(repeat: RepeatMapping) -> None:
    every, immediately = truthy(repeat.get("every")), truthy(repeat.get("immediately"))
    if truthy(repeat.get("pattern")) == every:
        kinds = "Both .pattern and .every options are" if every else "Either .pattern or .every options must be"
        raise InvalidArgument(f"{kinds} defined for this repeatable job")
    if immediately and truthy(repeat.get("startDate")):
        raise InvalidArgument("Both .immediately and .startDate options are defined for this repeatable job")
    if immediately and every:
        logger.warning(
            "Using option immediately with every does not affect the job's schedule. Job will run immediately anyway."
        )


def _iteration_repeat(repeat: RepeatMapping, count: int) -> dict[str, Any]:
    kept = {option: value for option, value in repeat.items() if option != "immediately"}
    dates = {name: date_of(repeat, name) for name in _DATES}
    return {**kept, "offset": None, "count": count, **dates}


def _schedule(repeat: RepeatMapping, name: str) -> dict[str, Any]:
    """Return what the script stores in the record; all names are sent, None for what is not given."""
    return {
        "name": name,
        "startDate": date_of(repeat, "startDate"),
        "endDate": date_of(repeat, "endDate"),
        **{option: repeat.get(option) for option in ("tz", "pattern", "every", "limit")},
        "offset": None,
    }
