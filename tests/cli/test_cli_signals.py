"""Signals at random moments: no process, key or folder of ours is left, and foreign keys are as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.servers import RedisInstance, open_server

from .signals import VERBS, Interruption, Verb, carry_out, drawn, plant_foreign_keys


@pytest.fixture(scope="module")
def users_redis() -> Iterator[RedisInstance]:
    """A Redis that the kit is let into, with keys of somebody else."""
    with open_server(None, announce=print) as server:
        plant_foreign_keys(server)
        yield server


def case_of(verb: Verb) -> Interruption:
    """By a seed of its own: `python -m tests.cli.signals` plays many."""
    return drawn(random.Random(verb.name), verb)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_nothing_is_left_of_a_verb_that_is_interrupted(verb: Verb, users_redis: RedisInstance, tmp_path: Path) -> None:
    case = case_of(verb)
    aftermath = carry_out(case, users_redis, tmp_path)
    assert aftermath.well, f"{case}: {aftermath}"
