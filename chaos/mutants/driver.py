"""`python -m chaos.mutants.driver NAME`: the reference's driver with one defect."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from chaos.mutants.catalogue import CHAOS_MUTANTS
from conformance.mutants.damage import Damage
from conformance.mutants.driver import mutant_server
from conformance.mutants.registry import Mutant
from conformance.problems import Problem, UsageProblem
from conformance.reference_impl.scripts.runner import official_scripts


def main(arguments: Sequence[str]) -> int:
    """Serve until stdin ends. Exit code 2 for a wrong command line, 3 for a missing package or Node."""
    try:
        if len(arguments) != 1:
            raise UsageProblem("the name of one mutant is needed", hint="python -m chaos.mutants.driver NAME")
        found = CHAOS_MUTANTS.find(arguments[0])
        sick = Mutant(found.name, found.what, (found.kills,), found.inflict)
        mutant_server(sick, Damage(found.name), official_scripts()).run()
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
