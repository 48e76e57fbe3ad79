"""Every fault against every invariant, for the reference and for Node: alone, mixed, with a partner, in containers."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from chaos.config import TopologyName
from chaos.conftest import complaint
from chaos.faults.base import FAULTS, select_faults
from chaos.images.build import NODE_WORKER, PYTHON_WORKER
from chaos.options import ChaosOptions
from chaos.results import ResultRow, result_row
from chaos.runner import run_chaos
from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.problems import EnvironmentProblem
from conformance.servers.setting import DEFAULT_IMAGE

PROCESS_FAULTS = [name for name, fault in FAULTS.items() if not fault.only_containers]
SEED = 1
PAUSE_MS = 20
"""Pause between two calls of the producer: about 40 jobs a second are enough, and leave CPU time for other tests."""
SOAK = "worker.kill,worker.freeze,network.reset,network.brief-silence,redis.script-flush,redis.freeze,redis.client-kill"
NEWEST_5 = "node@5.81.3"
PAIRS = [("reference", "node"), ("node", "reference"), ("node", NEWEST_5), ("reference", NEWEST_5)]
IMAGE_VARIABLE = "BULLMQ_CHAOS_REDIS_IMAGE"
"""Environment variable for the image of Redis; default: that of `--redis container`."""
CONTAINER_FAULTS = (
    "docker.restart",
    "docker.unplug",
    "redis.freeze",
    "redis.flushall",
    "redis.client-kill",
    "worker.kill",
)
WORKER_IMAGES = {"reference": PYTHON_WORKER, "node": NODE_WORKER}
WORKER_FAULTS = ("worker.kill", "worker.freeze")


def survived(options: ChaosOptions, environment: Environment) -> ResultRow:
    """Run, and fail the test unless every invariant holds."""
    started = time.monotonic()
    result = result_row(run_chaos(options, environment), seconds=time.monotonic() - started)
    assert not complaint(result), complaint(result)
    return result


@pytest.mark.parametrize("name", PROCESS_FAULTS)
def test_every_invariant_holds(client: str, name: str, environment: Environment) -> None:
    """Each fault, in its default topology."""
    fault = FAULTS[name]
    options = ChaosOptions(
        client=environment.launch(client),
        faults=[fault],
        topology=fault.topologies[0],
        seed=SEED,
        pause_ms=PAUSE_MS,
    )
    survived(options, environment)


@pytest.mark.parametrize("topology", ["replica", "sentinel", "cluster"])
def test_nothing_happens_where_nothing_is_wrong(client: str, topology: TopologyName, environment: Environment) -> None:
    """The workload alone, in the other topologies."""
    launch = environment.launch(client)
    survived(ChaosOptions(client=launch, faults=[], topology=topology, duration_ms=2000, seed=SEED), environment)


def test_a_soak_by_a_random_nemesis(client: str, environment: Environment) -> None:
    """`bullmq-conformance chaos --together --duration 30m` is the same for longer; memory is watched."""
    options = ChaosOptions(
        client=environment.launch(client),
        faults=select_faults(SOAK),
        together=True,
        duration_ms=30_000,
        seed=3,
        rounds=1,
    )
    result = survived(options, environment)
    assert result.timeline is not None
    assert len(result.timeline.memory) >= 20


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_clients_share_the_queues(first: str, second: str, environment: Environment) -> None:
    """Two clients, or two versions of BullMQ: one worker each, while workers die; the first client adds the jobs."""
    try:
        partner = environment.launch(second)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    client, fault = environment.launch(first), FAULTS["worker.kill"]
    survived(ChaosOptions(client=client, partner=partner, faults=[fault], seed=4), environment)


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("name", CONTAINER_FAULTS)
def test_redis_in_containers(client: str, name: str) -> None:
    """Every invariant holds there as well."""
    redis = f"container:{os.environ.get(IMAGE_VARIABLE, DEFAULT_IMAGE)}"
    with prepare(EnvironmentOptions(redis=redis), redis="program") as environment:
        launch, fault = environment.launch(client), FAULTS[name]
        survived(ChaosOptions(client=launch, faults=[fault], redis=redis, seed=1, rounds=1), environment)


@pytest.mark.usefixtures("docker")
def test_workers_in_containers(client: str, environment: Environment) -> None:
    """`docker kill` and `docker pause` in one run, because starting containers is slow."""
    image = WORKER_IMAGES[client]
    if not has_image(image):
        pytest.skip(f"there is no image {image}: python -m chaos.images.build (docs/how-to/chaos.md, Images)")
    launch, faults = environment.launch(client), [FAULTS[name] for name in WORKER_FAULTS]
    survived(ChaosOptions(client=launch, faults=faults, together=True, seed=1, rounds=1, image=image), environment)


def has_image(name: str) -> bool:
    """Whether the engine has it already."""
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0
