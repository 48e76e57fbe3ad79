"""`python -m tests.steady.defective_driver MUTANT`: a mutant without the capability `clock`, like most clients."""

from __future__ import annotations

import sys

from conformance.mutants.damage import Damage
from conformance.mutants.driver import mutant_server
from conformance.mutants.registry import MUTANTS
from conformance.reference_impl.scripts.runner import official_scripts


def main() -> None:
    mutant = MUTANTS.find(sys.argv[1])
    server = mutant_server(mutant, Damage(mutant.name), official_scripts())
    server.capabilities = [name for name in server.capabilities if name != "clock"]
    server.run()


if __name__ == "__main__":
    main()
