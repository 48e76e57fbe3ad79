"""Container mode: the same scenarios on a Redis that the docker engine hurts, and workers in containers."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from chaos.conftest import complaint
from chaos.equipment import Equipment
from chaos.faults.registry import all_faults
from chaos.images.build import NODE_WORKER, PYTHON_WORKER
from chaos.report.results import result_of
from chaos.runner import Spec, run_chaos
from conformance.servers.setting import DEFAULT_IMAGE

IMAGE_VARIABLE = "BULLMQ_CHAOS_REDIS_IMAGE"
"""Names the image of Redis; by default that of `--redis container`."""
FAULTS = (
    "docker.restart",
    "docker.unplug",
    "redis.freeze",
    "redis.flushall",
    "redis.client-kill",
    "worker.kill",
)
WORKER_IMAGES = {"reference": PYTHON_WORKER, "node": NODE_WORKER}
WORKER_FAULTS = ("worker.kill", "worker.freeze")

pytestmark = pytest.mark.usefixtures("docker")


def has_image(name: str) -> bool:
    """Whether the engine has it already."""
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", FAULTS)
def test_redis_in_a_container(client: str, name: str, equipment: Equipment) -> None:
    """Every invariant holds there as well."""
    redis = f"container:{os.environ.get(IMAGE_VARIABLE, DEFAULT_IMAGE)}"
    fault, begun = all_faults()[name], time.monotonic()
    spec = Spec(client=equipment.launch(client), faults=[fault], redis=redis, seed=1, texts=equipment.texts, rounds=1)
    result = result_of(run_chaos(spec), seconds=time.monotonic() - begun)
    assert not complaint(result), complaint(result)


def test_workers_in_containers(client: str, equipment: Equipment) -> None:
    """`docker kill` and `docker pause`, in one run: starting containers is what takes long."""
    image = WORKER_IMAGES[client]
    if not has_image(image):
        pytest.skip(f"there is no image {image}: python -m chaos.images.build (docs/chaos.md, Images)")
    faults = [all_faults()[name] for name in WORKER_FAULTS]
    spec = Spec(client=equipment.launch(client), faults=faults, seed=1, texts=equipment.texts, rounds=1, image=image)
    result = result_of(run_chaos(spec), seconds=0)
    assert not complaint(result), complaint(result)
