"""Which client a name stands for, and the command that starts its driver.

`node` is the oracle's own driver, `reference` the kit's Python client; every folder in `conformance/clients` that holds
a `client.toml` is another name (with `-` for `_`). `NAME@VERSION` is another version of it, and packages that it stands
on are chosen like `redis==7.4.1`. Any other client is given by its command.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

import msgspec

from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.python_environments import PythonPackages, ensure_python_environment
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import BullMQPackage, driver_command, ensure_bullmq
from conformance.upstream.registry import VERSION_HINT, exact_version, is_version

_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_PACKAGE = re.compile(r"(?P<name>@?[\w./-]+)==(?P<version>[\w.+-]+)")


@dataclass(frozen=True)
class Launch:
    """How a driver is started: a command (never through a shell) and variables added to the environment.

    `packages`: versions that were chosen for what the client stands on. `named`: whether it is one of the clients that
    the kit knows by name, so that its name and these are enough to start it again.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    named: bool = False

    @property
    def text(self) -> str:
        """As `--partner` takes it."""
        return self.name if self.named else shlex.join(self.command)

    @property
    def words(self) -> list[str]:
        """The words of a command line that ask for this client."""
        if not self.named:
            return ["--", *self.command]
        return [*(word for package in self.packages for word in ("--with", package)), "--client", self.name]


NOBODY = Launch("nobody", [])
"""The client of a verb that has none: the oracle is alone."""


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`client.toml`: `command` may use `{python}` (of its own environment), `{here}` and `{program}` (built)."""

    description: str
    command: tuple[str, ...]
    requirements: str | None = None
    """A hashed requirements file beside it; installed once into an environment of its own."""
    package: str | None = None
    """The package on PyPI that `NAME@VERSION` takes another version of."""
    build: BuildStep | None = None
    """For a client that is compiled: how its driver is built, once for each state of its source."""

    def build_in(self, folder: Path, client: str) -> ClientBuild | None:
        """The build of this client, whose folder it is; None for one that is not built."""
        return ClientBuild(client, folder, self.build) if self.build else None


def client_folders() -> dict[str, Path]:
    """Folder of each client that ships with the kit, by the name that users give."""
    root = Path(str(files("conformance.clients")))
    return {path.parent.name.replace("_", "-"): path.parent for path in sorted(root.glob("*/client.toml"))}


def client_names() -> list[str]:
    """Every name that `--client` takes."""
    return ["reference", "node", *client_folders()]


@dataclass(frozen=True)
class ClientEntry:
    """A client as it is listed. `obstacle`: what keeps it from being run on this machine; empty where nothing does."""

    name: str
    description: str
    obstacle: str = ""


def client_entries() -> Iterator[ClientEntry]:
    """Every client that comes with the kit, and whether it can be run here."""
    yield ClientEntry("reference", "The kit's own Python client")
    yield ClientEntry("node", "Node.js BullMQ in any version, such as node@5.81.5 or node@newest-6")
    for name, folder in client_folders().items():
        described = _described(folder)
        build = described.build_in(folder, name)
        yield ClientEntry(name, described.description, build.obstacle() if build else "")


def _described(folder: Path) -> ClientFile:
    return msgspec.convert(tomllib.loads((folder / "client.toml").read_text("utf-8")), ClientFile)


@dataclass(frozen=True)
class Toolchain:
    """What drivers are started with: Node, the oracle's package, and a way to say what takes long."""

    node: NodeBinary
    package: BullMQPackage
    announce: Callable[[str], None]

    @property
    def oracle(self) -> Launch:
        """The Node driver on the oracle's package."""
        command, environment = driver_command(self.node, self.package)
        return Launch("node", command, environment, named=True)

    def launch(self, name: str, command: Sequence[str] = (), packages: Sequence[str] = ()) -> Launch:
        """The driver of a named client, in the version behind an `@`, or of a given command.

        `node` alone has the oracle's version. `packages`: versions of what the client stands on, such as `redis==7.4.1`
        or `ioredis==5.4.1`. Raises UsageProblem for what no client is called or nobody can choose, EnvironmentProblem
        where something cannot be installed.
        """
        chosen = dict(map(_name_and_version, packages))
        if command:
            _refuse(chosen, "a driver that was given by its command")
            return Launch(name, list(command))
        client, at, version = name.partition("@")
        known = is_version(version) if client == "node" else _VERSION.fullmatch(version)
        if at and client and not known:
            raise UsageProblem(f"{name!r} names no version", hint=VERSION_HINT)
        return replace(self._named(client, version, chosen), packages=list(packages), named=True)

    def partner(self, text: str) -> Launch:
        """The driver of a named client (`NAME[@VERSION]`), or of a command that is written as one text.

        A word without a slash is a name. Raises what `launch` raises, and UsageProblem for quotes that do not end.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageProblem(
                f"the driver command {text!r} cannot be read: {error}", hint="quote it like a shell"
            ) from error
        if len(words) <= 1 and "/" not in text:
            return self.launch(text)
        return self.launch(Path(words[0]).name, words)

    def _named(self, client: str, version: str, chosen: Mapping[str, str]) -> Launch:
        if client == "node":
            return self._node(version, chosen)
        if client == "reference":
            versions = {"reference": version} if version else {}
            _refuse({**chosen, **versions}, "the reference, which is part of the kit")
            environment = {"BULLMQ_CONFORMANCE_NODE": str(self.node.path)}
            return Launch(client, [sys.executable, "-m", "conformance.reference_impl.driver"], environment)
        return self._from_folder(client, version, chosen)

    def _node(self, asked: str, chosen: Mapping[str, str]) -> Launch:
        if not asked and not chosen:
            return self.oracle
        version = exact_version(self.node, asked) if asked else self.package.version
        package = ensure_bullmq(self.node, version, overrides=chosen, announce=self.announce)
        return Launch(f"node@{version}" if asked else "node", *driver_command(self.node, package))

    def _from_folder(self, client: str, version: str, chosen: Mapping[str, str]) -> Launch:
        folder = client_folders().get(client)
        if folder is None:
            raise UsageProblem(
                f"unknown client {client!r}",
                hint=f"use one of {', '.join(client_names())}, or give your driver's command after `--`",
            )
        described = _described(folder)
        packages = _python_packages(client, folder, described, version, chosen)
        python = sys.executable
        if packages:
            python = str(ensure_python_environment(client, packages, announce=self.announce))
        build = described.build_in(folder, client)
        program = build.ensure(self.announce) if build else ""
        command = [part.format(python=python, here=folder, program=program) for part in described.command]
        return Launch(f"{client}@{version}" if version else client, command)


def _python_packages(
    client: str, folder: Path, described: ClientFile, version: str, chosen: Mapping[str, str]
) -> PythonPackages | None:
    """What the client's environment holds: its pinned list, or the versions that were asked for; None for no list."""
    if not described.requirements:
        fixed = (
            f"client {client!r}, whose {described.build.lock} pins it"
            if described.build
            else (f"client {client!r}, which has no environment")
        )
        _refuse({**chosen, **({client: version} if version else {})}, fixed)
        return None
    if not version and not chosen:
        return PythonPackages.pinned(folder / described.requirements)
    if described.package is None:
        raise UsageProblem(f"client {client!r} has one version only", hint=f"name a `package` in {folder}/client.toml")
    main = {described.package: version or _pinned_version(folder / described.requirements, described.package)}
    return PythonPackages.resolved([f"{package}=={wanted}" for package, wanted in {**main, **chosen}.items()])


def _pinned_version(requirements: Path, package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)", requirements.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise UsageProblem(f"{requirements} does not pin {package}", hint="name the version: NAME@VERSION")
    return found[1]


def _name_and_version(package: str) -> tuple[str, str]:
    match = _PACKAGE.fullmatch(package)
    if match is None:
        raise UsageProblem(f"--with {package!r} names no package and version", hint="write it as redis==7.4.1")
    return match["name"], match["version"]


def _refuse(chosen: Mapping[str, str], of: str) -> None:
    """Raise UsageProblem where a version was chosen that nothing would take notice of."""
    if chosen:
        raise UsageProblem(
            f"the version of {', '.join(chosen)} cannot be chosen for {of}",
            hint="--with and @VERSION are for node and for clients with an environment of their own",
        )


def find_toolchain(node: str, announce: Callable[[str], None], oracle: str = "") -> Toolchain:
    """Find Node (`node`: a path or command, "" for what this machine has) and install the oracle's package once.

    `oracle`: a version of bullmq, also written `node@VERSION`, or a word such as `newest-6`; "" is the pinned one.
    Raises a Problem that says what is missing, or which installed file is not as npm left it.
    """
    found = find_node(node or None)
    return Toolchain(found, ensure_bullmq(found, oracle_version(found, oracle), announce=announce), announce)


def oracle_version(node: NodeBinary, oracle: str) -> str:
    """The exact version of an oracle as a user writes it. Raises UsageProblem for what names none."""
    if not oracle:
        return BULLMQ_VERSION
    name, _, version = oracle.rpartition("@")
    if name not in {"", "node"}:
        raise UsageProblem(f"--oracle {oracle}: the oracle is a version of Node's BullMQ", hint=VERSION_HINT)
    return exact_version(node, version)
