"""Signals at random moments: no process, key, folder or container of ours is left, and foreign keys are as before.

Once each here, by a seed of its own; `python -m tests.cli.signals --times 50` plays many of each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli.verbs import MODULES_OF_VERBS
from conformance.servers import RedisInstance, open_server
from tests.conftest import Missing

from .signals import IMAGE, VERBS, Room, Verb, carry_out, docker, drawn, heed_signals, plant_foreign_keys


@pytest.fixture(scope="module")
def users_redis() -> Iterator[RedisInstance]:
    """A Redis that the kit is let into, with keys of somebody else."""
    heed_signals()
    with open_server(None, announce=print) as server:
        plant_foreign_keys(server)
        yield server


def test_every_verb_is_interrupted() -> None:
    assert {verb.words[0] for verb in VERBS} == set(MODULES_OF_VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_nothing_is_left_of_a_verb_that_is_interrupted(
    verb: Verb, users_redis: RedisInstance, tmp_path: Path, missing: Missing
) -> None:
    if verb.contained and not docker("image", "inspect", IMAGE):
        missing("docker", f"no docker engine answers that has the image {IMAGE}: see docs/chaos.md, Images")
    aftermath = carry_out(drawn(random.Random(verb.name), verb), Room(users_redis, tmp_path))
    assert not aftermath.wrong, f"{aftermath.case}: {aftermath}"
