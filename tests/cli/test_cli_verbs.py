"""The table of verbs names every verb, and a verb costs no more than its own module."""

from __future__ import annotations

import subprocess
import sys

import click

from conformance.cli.verbs import MODULES_OF_VERBS, cli, loaded_verbs


def test_the_table_names_every_verb() -> None:
    assert [verb.name for verb in loaded_verbs()] == list(MODULES_OF_VERBS)
    context = click.Context(cli)
    assert all(getattr(cli.get_command(context, name), "name", None) == name for name in MODULES_OF_VERBS)
    assert cli.get_command(context, "nowhere") is None


def test_garbage_is_looked_for_seldom_in_the_program_and_still_is() -> None:
    code = """
import gc, sys, weakref
from conformance.environment import garbage
from conformance.cli.main import main

class Circle:
    pass

def circle():
    one = Circle()
    one.itself = one
    return weakref.ref(one)

sys.argv = ["bullmq-conformance", "--version"]
try:
    main()
except SystemExit:
    assert gc.get_threshold() == garbage.THRESHOLDS, gc.get_threshold()
    gone = circle()
    kept = [[] for _ in range(2 * garbage.THRESHOLDS[0])]
    print("gone" if gone() is None else "still there")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "gone"


def test_a_verb_does_not_pay_for_the_others() -> None:
    code = """
import sys
from conformance.cli.main import run
sys.argv = ["bullmq-conformance", "driver", "--help"]
run()
print(*sorted(name for name in sys.modules if name.startswith("conformance.cli.")), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stderr.split()}
    assert "driver" in loaded
    assert not loaded & {"fuzz", "mutants", "matrix", "spark", "chaos"}, done.stderr
