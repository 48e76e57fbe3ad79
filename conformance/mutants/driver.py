"""`python -m conformance.mutants.driver NAME`: the reference's driver with one defect."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from conformance.driver.serve import DriverServer
from conformance.mutants.damage import Damage
from conformance.mutants.registry import MUTANTS, Mutant
from conformance.problems import Problem
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts


def mutant_server(mutant: Mutant, damage: Damage, scripts: ScriptTexts) -> DriverServer:
    """A driver with the mutant's defect, which lasts until the damage is healed."""
    mutant.inflict(damage)
    broken = damage.scripts(scripts)
    server = make_server(lambda: broken)
    server.client["name"] = f"mutant {mutant.name}"
    return server


def main(arguments: Sequence[str]) -> int:
    """Serve until stdin ends. Exit code 2 for a wrong command line, 3 for a missing package or Node."""
    if len(arguments) != 1:
        print("usage: python -m conformance.mutants.driver NAME", file=sys.stderr)
        print(
            "\n".join(f"  {mutant.name}: {mutant.what.splitlines()[0]}" for mutant in MUTANTS.values()),
            file=sys.stderr,
        )
        return 2
    try:
        mutant = MUTANTS.find(arguments[0])
        mutant_server(mutant, Damage(mutant.name), official_scripts()).run()
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
