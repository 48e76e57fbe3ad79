"""Start and end of the program: every problem is one line on stderr and an exit code, never a traceback.

Only the standard library is imported before signals are handled: loading the verbs takes a second.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from conformance import interruption
from conformance.environment import garbage
from conformance.pages.terminal import terminal_text
from conformance.problems import EnvironmentProblem, Problem, printable

OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the program and end it with its exit code."""
    garbage.raise_thresholds()
    try:
        with interruption.handled():
            code = run()
            # From here on nothing is left to clean up, and a signal during Python's exit would print a traceback.
            interruption.ignored()
    except KeyboardInterrupt:  # before the verb started, or after it printed everything
        code = interruption.EXIT_CODE
    sys.exit(code)


def run() -> int:
    """Run the verb on the command line; returns the exit code.

    Signals are still handled while an interruption is reported, so that a second Ctrl-C does not cut the report off.
    """
    with interruption.handled():
        try:
            return _carry_out_or_complain()
        except KeyboardInterrupt:
            # Noted before it is reported: otherwise the dropped exception would be raised again.
            interruption.arrived()
            return _complain("interrupted", "", interruption.EXIT_CODE)


def _carry_out_or_complain() -> int:
    try:
        return _carry_out()
    except Problem as problem:
        return _complain_about(problem)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        return _complain_about(disk_is_full(error))


def _carry_out() -> int:
    import click  # noqa: PLC0415 - see above

    from conformance.cli.verbs import cli  # noqa: PLC0415

    try:
        # `standalone_mode` off: click would exit by itself, past our exit codes.
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()  # here, where a full disk can still be explained
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return code if isinstance(code, int) else 0


def disk_is_full(error: OSError) -> EnvironmentProblem:
    """The problem to report when a write, also to stdout, fails because the disk is full."""
    try:
        sys.stdout.flush()
    except OSError:
        # The unprinted text is lost; without this Python would complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    where = f" {error.filename}" if error.filename else ""
    return EnvironmentProblem(
        f"cannot write{where}: {error.strerror}", hint="free some space on the disk, or choose another --out"
    )


def _complain_about(problem: Problem) -> int:
    """Print the problem; a broken driver is named by its command, because a run has two drivers."""
    from conformance.driver.errors import DriverBroken  # noqa: PLC0415 - see above

    broken = problem if isinstance(problem, DriverBroken) else DriverBroken("")
    what = f"driver `{broken.driver}`: {problem.what}" if broken.driver else problem.what
    return _complain(what, problem.hint, problem.exit_code, broken.log)


def _complain(what: str, hint: str, code: int, log: Sequence[str] = ()) -> int:
    """Print it on stderr. `log`: the last lines that a driver wrote, which usually contain the cause."""
    from rich.console import Console  # noqa: PLC0415 - see above

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(printable(f"error: {what}"), style="bold red")
    if hint:
        console.print(terminal_text(f"hint: {hint}"))
    for line in log:
        console.print(printable(f"driver log: {line}"), style="dim")
    return code
