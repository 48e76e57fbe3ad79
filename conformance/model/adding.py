"""Adding jobs: what the client makes of what its user gave, the checks, the hash, and the first state.

A job takes a number even if it brings its own id, or turns out to be a duplicate. A flow is a tree of jobs, added in
one transaction; a job with children waits for them before it is worked on. All jobs of one level are added before
those below. A refusal of the server is not reported to the caller: the job is just not there, and its children find no
parent.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.driver.ops import flow as flow_ops
from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Ids, JobRef
from conformance.model.calls import CallFailure, NotModelled, refuse, script_error
from conformance.model.deduplication import deduplicated
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit, emit_within_limit, note_limit
from conformance.model.job_objects import (
    JobOptions,
    check_modelled,
    check_options,
    deduplication_id,
    encode_options,
    is_number,
    job_object_options,
)
from conformance.model.order import delay_score, mark_next_delay, put_prioritized, put_waiting
from conformance.model.parents import child_completed
from conformance.model.state import ExpiringValue, KeptBackJob, ModelState, QueueState
from conformance.model.texts import argument, cjson, lua_true, normalised_json
from conformance.protocol.job_fields import PARENT_FLAG_OPTIONS
from conformance.protocol.scripts import DRIVER_CODES, ErrorCode

PARENT_FLAGS = {
    "failParentOnFailure": "fpof",
    "removeDependencyOnFailure": "rdof",
    "ignoreDependencyOnFailure": "idof",
    "continueParentOnFailure": "cpof",
}
MOST_DIGITS = 14
CODE_NUMBERS = {name: int(code) for code, name in DRIVER_CODES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToAdd:
    """A job on its way into a queue. `options` are those of the Job object; `waits_for_children`: parent of a flow."""

    queue: QueueState
    id: str
    """Empty: the queue makes one."""
    name: str
    data_raw: str
    options: JobOptions
    timestamp: float
    waits_for_children: bool = False

    @property
    def parent(self) -> Mapping[str, Any] | None:
        """The option `parent`: id and qualified queue name."""
        given: Mapping[str, Any] | None = self.options.get("parent")
        return given or None

    @property
    def parent_key(self) -> str | None:
        """The full key of the parent."""
        return None if self.parent is None else f"{self.parent['queue']}:{self.parent['id']}"

    @property
    def is_delayed(self) -> bool:
        """Whether the job has to wait for its time."""
        delay: Any = self.options.get("delay")
        return is_number(delay) and delay > 0

    @property
    def script(self) -> str:
        """The script that adds such a job."""
        if self.waits_for_children:
            return "addParentJob"
        if self.is_delayed:
            return "addDelayedJob"
        return "addPrioritizedJob" if self.options.get("priority") else "addStandardJob"


def job_to_add(
    queue: QueueState, name: str, data_raw: str, given: Mapping[str, Any], now_ms: int, *, job_id: str | None = None
) -> JobToAdd:
    """The job that the client makes of what its user gave. Raises CallFailure where the client refuses it."""
    check_modelled(given)
    try:
        normalised_json(data_raw)
    except ValueError as error:
        raise NotModelled(f"data that is not JSON: {error}") from error
    options = job_object_options(given)
    check_options(options, data_raw)
    chosen = job_id if job_id is not None else (given.get("jobId") or "")
    timestamp = options.get("timestamp") or now_ms
    return JobToAdd(queue=queue, id=chosen, name=name, data_raw=data_raw, options=options, timestamp=timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJobHash:
    """The data for the hash of a new job; `options` under their short names."""

    name: str
    data_raw: str
    options: JobOptions
    timestamp: float
    links: Mapping[str, str] = field(default_factory=dict)
    """Fields that name what the job belongs to: a parent, a scheduler."""


def store_job(state: ModelState, queue: QueueState, job_id: str, record: NewJobHash) -> None:
    """Write the job's hash, with the event `added`. An older hash under the same id shines through."""
    fields = {
        "name": record.name,
        "data": record.data_raw,
        "opts": cjson(record.options),
        "timestamp": argument(record.timestamp),
        "delay": argument(_or_zero(record.options.get("delay"))),
        "priority": argument(_or_zero(record.options.get("priority"))),
        **record.links,
    }
    deduplication = record.options.get("de")
    if deduplication is not None and lua_true(deduplication.get("id")):
        fields["deid"] = argument(deduplication["id"])
    queue.hash(job_id).update(fields)
    emit(state, queue, "added", jobId=job_id, name=record.name)


def parent_fields(job: JobToAdd) -> dict[str, str]:
    """The two fields by which a job knows its parent, and what its failure will mean to it."""
    assert job.parent is not None
    assert job.parent_key is not None
    flags = {PARENT_FLAGS[name]: True for name in PARENT_FLAG_OPTIONS if job.options.get(name)}
    return {
        "parentKey": job.parent_key,
        "parent": cjson({"id": job.parent["id"], "queueKey": job.parent["queue"], **flags}),
    }


def _or_zero(value: Any) -> Any:
    return value if lua_true(value) else 0


def add(state: ModelState, job: JobToAdd) -> str:
    """Store a job and put it into its first state: the id of the job that is there now.

    Raises CallFailure where the parent is missing or may not be replaced.
    """
    queue = job.queue
    state.scripts.add(job.script)
    if job.parent_key is not None and not state.exists(job.parent_key):
        # Before the counter moves, as in the script: this refusal costs no number.
        script_error(ErrorCode.MISSING_PARENT)
    job_id = job.id or str((queue.id_counter or 0) + 1)
    if not job.id and len(job_id) > MOST_DIGITS:
        raise NotModelled("ids of more than 14 digits, which 5.62.0 writes with an exponent in some keys")
    # Also for a custom id and for a duplicate: the script counts before it looks.
    queue.id_counter = (queue.id_counter or 0) + 1
    note_limit(queue)
    if job.id and job_id in queue.jobs:
        return _duplicate(state, job, job_id)
    stored = encode_options(job.options)
    # After the check for a duplicate id, which comes first in the scripts too.
    links = {} if job.parent_key is None else parent_fields(job)
    new = KeptBackJob(
        id=job_id, name=job.name, data_raw=job.data_raw, options=stored, links=links, parent_key=job.parent_key
    )
    kept = deduplicated(state, queue, new, stored.get("de") if deduplication_id(job.options) else None)
    if kept is not None:
        return kept
    record = NewJobHash(name=job.name, data_raw=job.data_raw, options=stored, timestamp=job.timestamp, links=links)
    store_job(state, queue, job_id, record)
    # After the hash, because the event `added` precedes that of the placement.
    _place(state, job, job_id, stored)
    if job.parent_key is not None:
        _join_parent(state, job.parent_key, queue.key(job_id))
    return job_id


def add_kept_back(state: ModelState, queue: QueueState, ended: str, now_ms: int) -> None:
    """The owner of a deduplication id has ended: add the job that was kept back meanwhile. It takes a number."""
    name = queue.field(ended, "deid")
    job = queue.kept_back.pop(name, None) if name is not None else None
    if name is None or job is None:
        return
    queue.id_counter = (queue.id_counter or 0) + 1
    queue.deduplications[name] = ExpiringValue(job.id)
    record = NewJobHash(name=job.name, data_raw=job.data_raw, options=job.options, timestamp=now_ms, links=job.links)
    store_job(state, queue, job.id, record)
    if lua_true(job.options.get("delay")) and job.options["delay"] > 0:
        put_delayed(state, queue, job.id, now_ms, job.options["delay"])
    else:
        put_to_work(state, queue, job.id, job.options)
    if job.parent_key is not None:
        _join_parent(state, job.parent_key, queue.key(job.id))


def _place(state: ModelState, job: JobToAdd, job_id: str, stored: JobOptions) -> None:
    """The first state: parents wait for their children, delayed jobs for their time, all others for a worker."""
    if job.waits_for_children:
        job.queue.waiting_children.add(job_id, job.timestamp)
        emit_within_limit(state, job.queue, "waiting-children", jobId=job_id)
    elif job.is_delayed:
        put_delayed(state, job.queue, job_id, job.timestamp, stored["delay"])
    else:
        put_to_work(state, job.queue, job_id, stored)


def put_delayed(
    state: ModelState,
    queue: QueueState,
    job_id: str,
    from_ms: float,
    delay_ms: float,
    *,
    at: tuple[float, float] | None = None,
) -> None:
    """Let a job wait until its time (absolute ms in the event). `at`: score and due time, if known already."""
    score, due = at or delay_score(queue, from_ms, delay_ms)
    queue.delayed.add(job_id, score)
    emit_within_limit(state, queue, "delayed", jobId=job_id, delay=argument(due))
    mark_next_delay(queue)


def put_to_work(state: ModelState, queue: QueueState, job_id: str, stored: JobOptions) -> None:
    """Let a new job wait for a worker; `lifo` lets it overtake, but not among jobs with a priority."""
    if stored.get("priority"):
        put_prioritized(queue, job_id, stored["priority"])
    else:
        put_waiting(queue, job_id, "right" if lua_true(stored.get("lifo")) else "left")
    emit_within_limit(state, queue, "waiting", jobId=job_id)


def _join_parent(state: ModelState, parent_key: str, child_key: str) -> None:
    queue, parent = state.locate(parent_key)
    queue.relations(parent).unprocessed[child_key] = None


def _duplicate(state: ModelState, job: JobToAdd, job_id: str) -> str:
    """A job with this id exists: it stays as it is, but may get a parent."""
    queue = job.queue
    known_parent = queue.field(job_id, "parentKey")
    if known_parent is None or known_parent == job.parent_key:
        if job.parent_key is not None:
            _adopt(state, job, job_id)
    elif job.parent_key is not None and state.exists(known_parent):
        script_error(ErrorCode.PARENT_REPLACED)
    emit_within_limit(state, queue, "duplicated", jobId=job_id)
    return job_id


def _adopt(state: ModelState, job: JobToAdd, job_id: str) -> None:
    """Give an existing job a parent; one that is completed hands its value over at once."""
    assert job.parent_key is not None
    queue = job.queue
    if job_id in queue.completed:
        returned = queue.field(job_id, "returnvalue") or ""
        # The time of the new job, not the clock: the add scripts get no other time.
        child_completed(state, job.parent_key, queue.key(job_id), returned, int(job.timestamp))
    else:
        _join_parent(state, job.parent_key, queue.key(job_id))
    queue.hash(job_id).update(parent_fields(job))


def lost_scripts(context: CallContext, needed: set[str]) -> set[str]:
    """The scripts that the handle has used before, and that Redis has forgotten since. It knows all of them now."""
    lost = (needed & context.handle.known_scripts) - context.state.scripts
    context.handle.known_scripts |= needed
    return lost


def with_defaults(context: CallContext, opts: Mapping[str, Any]) -> JobOptions:
    """The job's options over the queue's `defaultJobOptions`; an id is never a default."""
    merged = {**context.handle.option("defaultJobOptions", {}), **opts}
    if "jobId" not in opts:
        merged.pop("jobId", None)
    return merged


@operation(ops.Add)
def _add(context: CallContext, op: ops.Add) -> JobRef:
    options = with_defaults(context, op.opts)
    if options.get("repeat"):
        raise NotModelled("the option repeat of add: job schedulers have taken its place")
    job_id = options.get("jobId")
    if job_id is not None and (not isinstance(job_id, str) or job_id == "0" or job_id.startswith("0:")):
        refuse("an id that is not a text, or that looks like a marker")
    job = job_to_add(context.queue, op.name, op.data_raw, options, context.now_ms)
    lost_scripts(context, {job.script})
    return JobRef(id=add(context.state, job))


@operation(ops.AddBulk)
def _add_bulk(context: CallContext, op: ops.AddBulk) -> Ids:
    """All jobs are checked before the first is sent. A refusal of a script only shows as a negative id."""
    jobs = [
        job_to_add(context.queue, job.name, job.data_raw, with_defaults(context, job.opts), context.now_ms)
        for job in op.jobs
    ]
    needed = {job.script for job in jobs}
    if lost_scripts(context, needed) not in (set(), needed):
        # Those whose script was lost are sent once more, behind all others.
        context.state.determined = False
    ids: list[str] = []
    broken: CallFailure | None = None
    for job in jobs:
        try:
            ids.append(add(context.state, job))
        except CallFailure as failure:
            if failure.code not in CODE_NUMBERS:
                # The pipeline runs to its end; the client raises the first error of Redis afterwards.
                broken = broken or failure
            # Node.js takes the negative reply for an id and reports no error.
            ids.append(str(CODE_NUMBERS.get(failure.code, 0)))
    if broken is not None:
        raise broken
    return Ids(ids=ids)


@dataclass(slots=True)
class _FlowNodeToAdd:
    """A node of a flow: its place in the returned tree, and the job to add."""

    job: JobToAdd
    queue: str
    children: list[_FlowNodeToAdd] = field(default_factory=list)

    def returned(self) -> flow_ops.FlowNode:
        return flow_ops.FlowNode(
            id=self.job.id, queue=self.queue, children=[child.returned() for child in self.children]
        )


@operation(flow_ops.AddFlow)
def _add_flow(context: CallContext, op: flow_ops.AddFlow) -> flow_ops.FlowNode:
    return _add_trees(context, [op.flow], op.queues_options or {})[0]


@operation(flow_ops.AddFlows)
def _add_flows(context: CallContext, op: flow_ops.AddFlows) -> flow_ops.FlowNodes:
    return flow_ops.FlowNodes(flows=_add_trees(context, op.flows, {}))


def _add_trees(
    context: CallContext, flows: list[flow_ops.FlowJob], defaults: Mapping[str, JobOptions]
) -> list[flow_ops.FlowNode]:
    """Make all jobs first: one that the client refuses prevents everything. Then add them, level by level."""
    roots: list[_FlowNodeToAdd] = []
    order: list[_FlowNodeToAdd] = []
    todo = deque((flow, flow.opts.get("parent"), roots) for flow in flows)
    while todo:
        flow, parent, siblings = todo.popleft()
        node = _node_to_add(context, flow, {**defaults.get(flow.queue, {}), **flow.opts}, parent)
        siblings.append(node)
        order.append(node)
        link = {"id": node.job.id, "queue": node.job.queue.base.removesuffix(":")}
        todo.extend((child, link, node.children) for child in flow.children)
    if lost_scripts(context, {node.job.script for node in order}):
        # A flow producer sends a script's text only once: its jobs are lost without a word until another client of the
        # same Redis has sent it again, which is unpredictable.
        context.state.determined = False
    for node in order:
        # FlowProducer of 5.62.0 ignores the replies inside EXEC.
        with contextlib.suppress(CallFailure):
            add(context.state, node.job)
    return [root.returned() for root in roots]


def _node_to_add(
    context: CallContext, flow: flow_ops.FlowJob, given: JobOptions, parent: dict[str, str] | None
) -> _FlowNodeToAdd:
    options = {name: value for name, value in given.items() if name != "parent"}
    if parent:
        options["parent"] = parent
    queue = context.state.queue(flow.queue)
    job_id = options.get("jobId") or context.state.new_id()
    if ":" in job_id:
        raise NotModelled("ids with a colon in flows")
    job = job_to_add(queue, flow.name, flow.data_raw, options, context.now_ms, job_id=job_id)
    if flow.children:
        job = replace(job, waits_for_children=True)
    return _FlowNodeToAdd(job, flow.queue)
