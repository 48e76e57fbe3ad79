"""Flows that are stored wrongly, and parents that wait in vain, not at all, or do not notice the end of a child."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import flow_producer
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.flow_producer import FlowMapping, FlowPlan, FlowProducer, JobNode
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner


@mutant("flow.parent-runs", kills=("flow.parent.waits",))
def parent_runs(damage: Damage) -> None:
    """A parent waits like any other job, and does not wait for its children."""

    def broken(place: Function) -> Function:
        return lambda plan, pending, spans: place(plan, _without_children(pending), spans)

    damage.around(FlowPlan, "_place", broken)


@mutant("flow.defaults-ignored", kills=("flow.defaults",))
def defaults_ignored(damage: Damage) -> None:
    """The jobs of a flow have only options of their own."""

    def broken(merge: Function) -> Function:
        def own_only(plan: FlowPlan, queue: str, own: Mapping[str, Any], parent: Any) -> dict[str, Any]:
            if vars(plan)["_queues_options"]:
                damage.witness.note()
                vars(plan)["_queues_options"] = {}
            merged: dict[str, Any] = merge(plan, queue, own, parent)
            return merged

        return own_only

    damage.around(FlowPlan, "_merged_options", broken)


@mutant("flow.ids-from-time", kills=("flow.ids",))
def ids_from_time(damage: Damage) -> None:
    """Jobs of a flow get uuids that are made of the time."""
    damage.replace(flow_producer, "uuid", SimpleNamespace(uuid4=uuid.uuid1))


@mutant("flow.ids-in-options", kills=("flow.ids",))
def ids_in_options(damage: Damage) -> None:
    """The id that a job of a flow got is stored among its options."""

    def broken(place: Function) -> Function:
        def place_named(plan: FlowPlan, pending: Any, spans: ExitStack) -> Any:
            given = {"jobId": str(uuid.uuid4()), **(pending.flow.get("opts") or {})}
            return place(plan, _with_flow(pending, {**pending.flow, "opts": given}), spans)

        return place_named

    damage.around(FlowPlan, "_place", broken)


@mutant("flow.refused-half-way", kills=("flow.all-or-nothing-validation",))
def refused_half_way(damage: Damage) -> None:
    """A flow that is refused leaves its parent."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            try:
                return await add(producer, flow, opts)
            except InvalidArgument:
                await add(producer, {**flow, "children": []}, opts)
                raise

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.job-by-job", kills=("flow.atomic",))
def job_by_job(damage: Damage) -> None:
    """The jobs of a flow are stored one after the other, the parent first."""

    async def run_one_by_one(runner: ScriptRunner, calls: Sequence[EvalCommand]) -> list[Any]:
        return [await runner.run(call) for call in calls]

    damage.replace(ScriptRunner, "run_transaction", run_one_by_one)


@mutant("flow.bulk-of-one", kills=("flow.bulk",))
def bulk_of_one(damage: Damage) -> None:
    """Of several flows only the first is stored."""

    def broken(add: Function) -> Function:
        async def add_bulk(producer: FlowProducer, flows: Sequence[FlowMapping]) -> list[JobNode]:
            nodes: list[JobNode] = await add(producer, flows[:1])
            return nodes

        return add_bulk

    damage.around(FlowProducer, "addBulk", broken)


@mutant("flow.two-levels", kills=("flow.deep",))
def two_levels(damage: Damage) -> None:
    """Children of children are left out."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            children = [{**child, "children": []} for child in flow.get("children") or ()]
            return await add(producer, {**flow, "children": children}, opts)

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.one-queue", kills=("flow.deep",))
def one_queue(damage: Damage) -> None:
    """A child is put into the queue of its parent."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            children = [{**child, "queueName": flow["queueName"]} for child in flow.get("children") or ()]
            return await add(producer, {**flow, "children": children}, opts)

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.read-to-the-bottom", kills=("flow.get",))
def read_to_the_bottom(damage: Damage) -> None:
    """A flow is read without regard to the depth asked for."""
    _edit_get(damage, lambda asked: {**asked, "depth": 10})


@mutant("flow.read-pending-only", kills=("flow.get",))
def read_pending_only(damage: Damage) -> None:
    """A flow is read without its finished children."""

    def broken(read: Function) -> Function:
        async def dependencies(job: Job, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
            found: dict[str, Any] = await read(job, asked)
            return {**found, "processed": {}}

        return dependencies

    damage.around(Job, "getDependencies", broken)


def _edit_get(damage: Damage, edit: Function) -> None:
    def broken(read: Function) -> Function:
        async def get_flow(producer: FlowProducer, asked: Mapping[str, Any]) -> JobNode | None:
            found: JobNode | None = await read(producer, edit(asked))
            return found

        return get_flow

    damage.around(FlowProducer, "getFlow", broken)


def _without_children(pending: Any) -> Any:
    return _with_flow(pending, {**pending.flow, "children": []})


def _with_flow(pending: Any, flow: FlowMapping) -> Any:
    """The same place in the tree for another job."""
    return replace(pending, flow=flow)


@mutant(
    "flow.options-ignored",
    kills=("flow.fail.parent", "flow.fail.continue", "flow.fail.ignore", "flow.fail.remove"),
    by=("flow-failures/a_parent_with_a_failed_child_cannot_complete",),
)
def options_ignored(damage: Damage) -> None:
    """The failure option of a child is not stored."""
    damage.replace(options, "PARENT_FLAG_OPTIONS", ())


@mutant("flow.forgotten-failure-remembered", kills=("flow.fail.remove",))
def removed_dependency_remembered(damage: Damage) -> None:
    """With removeDependencyOnFailure a parent remembers the failure."""

    def broken(stored: Function) -> Function:
        def parent_field(given: Mapping[str, Any]) -> dict[str, Any] | None:
            found: dict[str, Any] | None = stored(given)
            return {("idof" if name == "rdof" else name): value for name, value in found.items()} if found else None

        return parent_field

    damage.around(options, "parent_field", broken)


@mutant("flow.remove-alone", kills=("flow.remove.parent",))
def remove_alone(damage: Damage) -> None:
    """Removing a parent leaves its children."""
    damage.argument("removeJob", 1, lambda _children: 0)


@mutant("flow.remove-always-all", kills=("flow.remove.parent",))
def remove_always_all(damage: Damage) -> None:
    """Removing a parent always removes its children."""
    damage.argument("removeJob", 1, lambda _children: 1)


@mutant("flow.children-kept", kills=("flow.remove.unprocessed",))
def children_kept(damage: Damage) -> None:
    """Removing the unprocessed children does nothing."""

    async def nothing(_job: Job) -> None:
        return None

    damage.replace(Job, "removeUnprocessedChildren", nothing)


@mutant("flow.unlink-always-true", kills=("flow.unlink",))
def unlink_always_true(damage: Damage) -> None:
    """Unlinking a child without parent is said to have worked."""

    def broken(unlink: Function) -> Function:
        async def remove_dependency(job: Job) -> bool:
            return bool(await unlink(job)) or True

        return remove_dependency

    damage.around(Job, "removeChildDependency", broken)
