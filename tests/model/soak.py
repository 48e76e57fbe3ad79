"""Many random sequences, model against oracle: `python -m tests.model.soak FIRST_SEED COUNT [STEPS]`.

Prints each disagreement with the steps that lead to it, and at the end how many sequences and steps agreed, and which
pairs of operation and job state were tried. Ends with 1 if anything disagreed.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter

from conformance.driver.errors import DriverBroken
from conformance.driver.transports import ChildProcess
from conformance.model import operations
from conformance.servers import open_server
from conformance.steps.shapes import CallStep
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

from .bench import Bench, Disagreement
from .generator import Generator
from .steps import WEIGHTS

MOST_STEPS = 50
LAST_SHOWN = 16
REPORT_EVERY = 25
CRASHES = (
    DriverBroken,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RecursionError,
)
"""Exceptions of a mistake in the model itself."""


def run_sequence(
    bench: Bench, seed: int, most_steps: int = MOST_STEPS, pairs: Counter[tuple[str, str]] | None = None
) -> int:
    """Up to this number of random steps; returns their number. Raises Disagreement."""
    generator = Generator(seed, WEIGHTS)
    count = random.Random(seed).randint(5, most_steps)
    for opening in generator.opening():
        bench.do(opening)
    for first in generator.first_steps(bench.model):
        bench.do(first)
    for _ in range(count):
        bench.now_ms += generator.clock_step()
        chosen = generator.step(bench.model, bench.now_ms)
        if pairs is not None and isinstance(chosen, CallStep):
            pairs[chosen.name, state_before(bench, chosen)] += 1
        bench.do(chosen)
    return count


def state_before(bench: Bench, call: CallStep) -> str:
    """The state of the job that a call is about; empty where it is about none."""
    job = getattr(call.op, "job", None)
    if job is None or call.handle is None:
        return ""
    queue = getattr(call.op, "queue", None) or bench.model.handles()[call.handle].queue
    return bench.model.state_of(queue, job)


def main(first: int, count: int, most_steps: int = MOST_STEPS) -> int:
    """Run the sequences of this number of seeds. Returns the number of disagreements."""
    node = find_node(None)
    command, environment = driver_command(node, ensure_package(node, announce=print))
    driver = ChildProcess.start(command, seed=1, env=environment)
    pairs: Counter[tuple[str, str]] = Counter()
    steps, bad, started = 0, 0, time.monotonic()
    with open_server(None, announce=print) as server, server.connect() as redis:
        for number, seed in enumerate(range(first, first + count), start=1):
            bench = Bench(driver, server, redis)
            try:
                steps += run_sequence(bench, seed, most_steps, pairs)
            except Disagreement as disagreement:
                bad += 1
                print(f"--- seed {seed}", *str(disagreement).splitlines()[-LAST_SHOWN:], sep="\n", flush=True)
            except CRASHES as crash:
                bad += 1
                print(
                    f"--- seed {seed}: {type(crash).__name__}: {crash}", f"{bench.history[-1:]}", sep="\n", flush=True
                )
                print("".join(traceback.format_exception(crash)[-4:]))
            finally:
                bench.leave()
            if number % REPORT_EVERY == 0:
                print(f"{number} sequences, {steps} steps, {bad} bad, {time.monotonic() - started:.0f} s", flush=True)
    driver.close()
    print(f"{count} sequences, {steps} steps, {bad} disagree")
    for op in operations.JOB_OPS:
        missing = sorted(state for state in operations.LEGAL[op] if not pairs[op, state])
        if missing:
            print(f"never tried: {op} on {', '.join(missing)}")
    tried = {op for op, _ in pairs}
    print("operations never tried:", ", ".join(sorted({*operations.JOB_OPS, *operations.QUEUE_OPS} - tried)) or "none")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
