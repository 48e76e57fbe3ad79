"""Flows that are stored wrongly, and parents that wait in vain, not at all, or do not notice the end of a child."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
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


@mutant("flow.read-to-the-bottom", kills=("flow.get",))
def read_to_the_bottom(damage: Damage) -> None:
    """A flow is read without regard to the depth asked for."""
    _edit_get(damage, lambda asked: {**asked, "depth": 10})


def _edit_get(damage: Damage, edit: Function) -> None:
    def broken(read: Function) -> Function:
        async def get_flow(producer: FlowProducer, asked: Mapping[str, Any]) -> JobNode | None:
            found: JobNode | None = await read(producer, edit(asked))
            return found

        return get_flow

    damage.around(FlowProducer, "getFlow", broken)


@mutant(
    "flow.options-ignored",
    kills=("flow.fail.parent", "flow.fail.continue", "flow.fail.ignore", "flow.fail.remove"),
    by=("flow-failures/a_parent_with_a_failed_child_cannot_complete",),
)
def options_ignored(damage: Damage) -> None:
    """The failure option of a child is not stored."""
    damage.replace(options, "PARENT_FLAG_OPTIONS", ())


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
