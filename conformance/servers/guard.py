"""Ends a server process when the kit ends: `python guard.py FOLDER PROGRAM ARGUMENT...`.

The kit holds the other end of this program's stdin and never writes to it. When that end closes, because the kit closed
it or has ended in any way, the guard kills the server and removes its folder. If the server ends first,
so does the guard, with the server's exit code, and leaves the folder (with the log) to the kit.

A pipe instead of PR_SET_PDEATHSIG, because that exists on Linux only, needs code between fork and exec, and fires when
the thread that started the process ends. The guard only imports a few modules of the
standard library, because every start of a server waits for it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from types import FrameType

COULD_NOT_START = 127
"""Exit code when the program cannot be executed at all."""


def main(folder: str, argv: list[str]) -> int:
    """Run the server until stdin closes or it ends. Returns the exit code of this program."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # Raises SystemExit, so that `finally` ends the server; the default action would skip it.
        signal.signal(number, _leave)
    server: int | None = None
    ended, held_by_server = os.pipe()
    # The server holds this end open, so its end shows up as the end of the pipe, without SIGCHLD or polling.
    os.set_inheritable(held_by_server, True)
    try:
        server = _start(argv)
        # After the start: if the guard kept this end too, the pipe would never close.
        os.close(held_by_server)
        readable, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        # The server first: if both ended, its exit code and log explain more than the closed stdin.
        if ended in readable:
            status = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
            # Already reaped: `finally` must not signal a process id that may belong to another process now.
            server = None
            return status if status >= 0 else 128 - status
    except OSError as error:
        print(f"cannot start {argv[0]}: {error}", file=sys.stderr)
        return COULD_NOT_START
    finally:
        if server is not None:
            _end(server, folder)
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _start(argv: list[str]) -> int:
    """Start the server with an empty stdin; it inherits the log as stdout and stderr. Raises OSError."""
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(argv[0], argv, os.environ, file_actions=[nothing], setsigdef=[signal.SIGPIPE])


def _end(server: int, folder: str) -> None:
    # SIGKILL, because the server has nothing to save.
    os.kill(server, signal.SIGKILL)
    # Before the folder is removed: a server that still writes would create files in it again.
    os.waitpid(server, 0)
    import shutil  # noqa: PLC0415 - half of the start-up time, and only needed at the end

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
