"""`permissions`: the smallest Redis ACL with which a client works."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
from rich.console import Console

from conformance.cli.options import configured
from conformance.environment.prepare import announce, client_under_test
from conformance.pages.terminal import terminal_text
from conformance.pages.text import count
from conformance.permissions.options import PermissionConfig
from conformance.permissions.record import PermissionRecord, UserPermissions, permissions_of, write_record
from conformance.permissions.rules import PermissionSet
from conformance.permissions.session import Learned, PermissionSession

RUNS = "permission-runs"


@click.command()
@configured(PermissionConfig)
def permissions(config: PermissionConfig) -> int:
    """Print the smallest Redis user with which a client passes its scenarios, as a line of ACL SETUSER.

    The client: a named one, or the driver started by COMMAND (after `--`). It is learned from a whole run. Exit code 1:
    with --prove or --minimize, a scenario is worse with the printed user.
    """
    config.check()
    name = client_under_test("" if config.command else config.client, config.command)
    console = Console(soft_wrap=True, highlight=False)
    with ExitStack() as stack:
        folder = config.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bullmq-conformance-")))
        found = [_permissions_of(config, user, folder / RUNS / user, console) for user in config.users]
        record = PermissionRecord(client=name, tier=config.tier, select=list(config.select), users=found)
        written = write_record(record, config.out) if config.out else []
    for user in found:
        _show(console, user)
    for path in written:
        announce(str(path))
    return 0 if record.is_proven else 1


def _permissions_of(config: PermissionConfig, user: str, folder: Path, console: Console) -> UserPermissions:
    """Learn the permissions of a user, and prove them if that is wanted."""
    session = PermissionSession(config.selection(user), folder, announce)
    announce(f"{user}: learning from a run")
    learned = session.learn()
    permissions = learned.uses.permissions
    scenarios = len(learned.outcome.verdicts)
    if not (config.prove or config.minimize):
        return permissions_of(user, config.prefix, permissions, learned.uses.counts, scenarios)
    announce(f"{user}: proving {count(len(permissions.permissions), 'permission')}")
    permissions, outcome = session.prove(permissions, learned.outcome)
    worse = outcome.worse_than(learned.outcome)
    minimize = config.minimize and not worse
    needed, dropped = _needs(session, permissions, learned, console) if minimize else ({}, [])
    for permission in dropped:
        permissions = permissions.without(permission)
    found = permissions_of(user, config.prefix, permissions, learned.uses.counts, scenarios)
    return msgspec.structs.replace(found, worse=worse, needed=needed, dropped=dropped)


def _needs(
    session: PermissionSession, permissions: PermissionSet, learned: Learned, console: Console
) -> tuple[dict[str, str], list[str]]:
    """Remove each permission in turn: which scenario fails without it, and which permissions are not needed."""
    needed: dict[str, str] = {}
    dropped: list[str] = []
    for permission in permissions.permissions:
        scenario = session.is_needed(permission, permissions, learned)
        console.print(terminal_text(f"without {permission:<20} {scenario or 'nothing fails'}"))
        if scenario:
            needed[permission] = scenario
        else:
            # Dropped at once, so that the next one is tried without it: two may replace each other.
            dropped.append(permission)
            permissions = permissions.without(permission)
    return needed, dropped


def _show(console: Console, user: UserPermissions) -> None:
    console.print(terminal_text(user.line))
    proof = "not proven" if user.worse is None else "; ".join(user.worse[:3]) or "passes with exactly these"
    needed = f", {len(user.needed)} needed, {len(user.dropped)} dropped" if user.needed else ""
    size = f"{count(len(user.commands), 'command')}, {count(user.scenarios, 'scenario')}"
    console.print(terminal_text(f"    {user.user}: {size}: {proof}{needed}"))
