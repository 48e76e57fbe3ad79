"""The table of verbs names every verb, and a verb costs no more than its own module."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import ModuleType

import click
import pytest

from conformance.cli.verbs import MODULES_OF_VERBS, cli, loaded_verbs


def test_the_table_names_every_verb() -> None:
    assert [verb.name for verb in loaded_verbs()] == list(MODULES_OF_VERBS)
    context = click.Context(cli)
    assert all(getattr(cli.get_command(context, name), "name", None) == name for name in MODULES_OF_VERBS)
    assert cli.get_command(context, "nowhere") is None


def test_garbage_is_looked_for_again_once_a_verb_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def empty(_name: str) -> ModuleType:
        seen.append(gc.isenabled())
        return ModuleType("empty")

    monkeypatch.setattr("conformance.cli.verbs.import_module", empty)
    assert not list(loaded_verbs())
    assert set(seen) == {False}
    assert gc.isenabled()

    def broken(_name: str) -> None:
        raise ImportError

    monkeypatch.setattr("conformance.cli.verbs.import_module", broken)
    with pytest.raises(ImportError):
        list(loaded_verbs())
    assert gc.isenabled()


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
