"""`python -m tests.fuzz.sick_driver NAME [OPERATION …]`: the reference with a planted defect, without those."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from conformance.mutants.damage import Damage
from conformance.mutants.driver import sick_server
from conformance.mutants.registry import Mutant
from conformance.reference_impl.scripts.official import official_scripts

from .planted import PLANTED


def _nothing(_damage: Damage) -> None:
    """Break nothing."""


HEALTHY = Mutant("healthy", "Nothing is broken.", (), (), (), (), _nothing)


def main(arguments: Sequence[str]) -> None:
    """Serve until stdin ends."""
    mutant = {**PLANTED, "healthy": HEALTHY}[arguments[0]]
    server = sick_server(mutant, Damage(mutant.name), official_scripts())
    for name in arguments[1:]:
        del server.ops[name]
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
