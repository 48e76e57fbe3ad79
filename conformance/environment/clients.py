"""Clients by name, and the commands that start their drivers.

`node` is the oracle's own driver, `reference` the kit's Python client; every folder in `conformance/clients` with a
`client.toml` is another client (with `-` for `_`). `NAME@VERSION` selects a version of the client, and `redis==7.4.1` a
version of one of its libraries. Any other client is given by its command.
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
from conformance.environment.node_environments import ensure_node_environment
from conformance.environment.python_environments import PythonPackages, ensure_python_environment, packages_of
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.upstream.installed_files import resolved_packages
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import BullMQPackage, driver_command, ensure_bullmq
from conformance.upstream.redis_libraries import DEFAULT, LIBRARY_VARIABLE, RedisLibrary, bun_program, other_library
from conformance.upstream.registry import VERSION_HINT, exact_version, is_version

_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_PACKAGE = re.compile(r"(?P<name>@?[\w./-]+)==(?P<version>[\w.+-]+)")


@dataclass(frozen=True)
class Launch:
    """How a driver is started: a command (never through a shell) and variables added to the environment.

    `packages`: chosen versions of the client's libraries. `library`: the one through which Node's BullMQ speaks to
    Redis, if it is not ioredis. `named`: whether the kit knows the client by name; then the name and `packages` are
    enough to start it again. `declares`: the only operations and capabilities of the driver that count as declared;
    empty: all. `installed`: all packages that the kit has installed for it and verified, by name: version and hash of
    the archive.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    library: RedisLibrary = DEFAULT
    named: bool = False
    declares: list[str] = field(default_factory=list)
    installed: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The client as a value of `--partner`."""
        return self.name if self.named else shlex.join(self.command)

    @property
    def words(self) -> list[str]:
        """The words of a command line that select this client."""
        if not self.named:
            return ["--", *self.command]
        library = [] if self.library == DEFAULT else ["--with-driver", self.library]
        return [*(word for package in self.packages for word in ("--with", package)), *library, "--client", self.name]


NO_CLIENT = Launch("none", [])
"""The client of a verb that runs the oracle alone."""


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`client.toml`: `command` may use `{python}` (of its own environment), `{node}`, `{here}`, `{program}` (built)."""

    description: str
    command: tuple[str, ...]
    requirements: str | None = None
    """A hashed requirements file in the same folder, installed once into its own environment."""
    package: str | None = None
    """The PyPI package whose version `NAME@VERSION` selects."""
    npm: bool = False
    """Whether `package-lock.json` in the same folder pins npm packages; `{here}` is a copy of the folder with them."""
    build: BuildStep | None = None
    """The build of a compiled client."""

    def build_in(self, folder: Path, client: str) -> ClientBuild | None:
        """The build of this client in its folder; None for a client that is not compiled."""
        return ClientBuild(client, folder, self.build) if self.build else None


def client_folders() -> dict[str, Path]:
    """Folders of the clients that ship with the kit, by the client's name."""
    root = Path(str(files("conformance.clients")))
    return {path.parent.name.replace("_", "-"): path.parent for path in sorted(root.glob("*/client.toml"))}


def client_names() -> list[str]:
    """All names for `--client`."""
    return ["reference", "node", *client_folders()]


@dataclass(frozen=True)
class ClientEntry:
    """A client in the list of clients. `obstacle`: why it cannot run on this machine; empty if it can."""

    name: str
    description: str
    obstacle: str = ""


def client_entries() -> Iterator[ClientEntry]:
    """All clients of the kit, and whether they can run on this machine."""
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
    """The tools that start drivers: Node.js, the oracle's package, and a function that announces slow steps."""

    node: NodeBinary
    package: BullMQPackage
    announce: Callable[[str], None]

    @property
    def oracle(self) -> Launch:
        """The Node driver on the oracle's package."""
        command, environment = driver_command(self.node, self.package)
        return Launch("node", command, environment, named=True, installed=self.package.resolved)

    def launch(
        self,
        name: str,
        command: Sequence[str] = (),
        packages: Sequence[str] = (),
        *,
        library: RedisLibrary = DEFAULT,
    ) -> Launch:
        """The driver of a named client (`NAME[@VERSION]`), or of a given command.

        `node` without version is the oracle's version. `packages`: versions of the client's libraries, such as
        `redis==7.4.1` or `ioredis==5.4.1`. `library`: of `node` only. Raises UsageProblem for an unknown client or
        version, EnvironmentProblem if something cannot be installed.
        """
        if library != DEFAULT and (command or name.partition("@")[0] != "node"):
            raise UsageProblem(
                f"--with-driver {library} has no effect on {name!r}",
                hint="it is for Node's BullMQ: --client node@6.7.0",
            )
        chosen = dict(map(_name_and_version, packages))
        if command:
            _refuse(chosen, "a driver that is given by its command")
            return Launch(name, list(command))
        client, at, version = name.partition("@")
        known = is_version(version) if client == "node" else _VERSION.fullmatch(version)
        if at and client and not known:
            raise UsageProblem(f"{name!r} has no valid version", hint=VERSION_HINT)
        if library != DEFAULT:
            launch = self._node_with(library, version, chosen)
        else:
            launch = self._named(client, version, chosen)
        return replace(launch, packages=list(packages), library=library, named=True)

    def partner(self, text: str) -> Launch:
        """The driver of a named client (`NAME[@VERSION]`), or of a command in one text.

        A single word without slash is a name. Raises the errors of `launch`, and UsageProblem for unclosed quotes.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageProblem(
                f"the driver command {text!r} cannot be read: {error}", hint="quote it as in a shell"
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
        name = f"node@{version}" if asked else "node"
        return Launch(name, *driver_command(self.node, package), installed=package.resolved)

    def _node_with(self, name: RedisLibrary, asked: str, chosen: Mapping[str, str]) -> Launch:
        """Node's BullMQ with another library for Redis than ioredis."""
        version = exact_version(self.node, asked) if asked else self.package.version
        library = other_library(name, version)
        package = ensure_bullmq(self.node, version, overrides=chosen, library=library, announce=self.announce)
        command, environment = driver_command(self.node, package)
        if name == "bun":
            command = [bun_program(), *command[1:]]
        return Launch(
            f"node@{version}" if asked else "node",
            command,
            {**environment, LIBRARY_VARIABLE: name},
            installed=package.resolved,
        )

    def _from_folder(self, client: str, version: str, chosen: Mapping[str, str]) -> Launch:
        folder = client_folders().get(client)
        if folder is None:
            raise UsageProblem(
                f"unknown client {client!r}",
                hint=f"use one of {', '.join(client_names())}, or give your driver's command after `--`",
            )
        described = _described(folder)
        packages = _python_packages(client, folder, described, version, chosen)
        python, installed = sys.executable, {}
        if packages:
            interpreter = ensure_python_environment(client, packages, announce=self.announce)
            python, installed = str(interpreter), packages_of(interpreter)
        build = described.build_in(folder, client)
        program = build.ensure(self.announce) if build else ""
        here = folder
        if described.npm:
            here = ensure_node_environment(client, folder, self.node, announce=self.announce)
            installed = resolved_packages(here)
        places = {"python": python, "node": self.node.path, "here": here, "program": program}
        command = [part.format(**places) for part in described.command]
        return Launch(f"{client}@{version}" if version else client, command, installed=installed)


def _python_packages(
    client: str, folder: Path, described: ClientFile, version: str, chosen: Mapping[str, str]
) -> PythonPackages | None:
    """The packages of the client's environment: pinned ones or the chosen versions; None without environment."""
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
        raise UsageProblem(f"client {client!r} has only one version", hint=f"set `package` in {folder}/client.toml")
    main = {described.package: version or _pinned_version(folder / described.requirements, described.package)}
    return PythonPackages.resolved([f"{package}=={wanted}" for package, wanted in {**main, **chosen}.items()])


def _pinned_version(requirements: Path, package: str) -> str:
    pin = re.search(rf"^{re.escape(package)}==(\S+)", requirements.read_text("utf-8"), re.MULTILINE)
    if pin is None:
        raise UsageProblem(f"{requirements} does not pin {package}", hint="give the version: NAME@VERSION")
    return pin[1]


def _name_and_version(package: str) -> tuple[str, str]:
    match = _PACKAGE.fullmatch(package)
    if match is None:
        raise UsageProblem(f"invalid package {package!r} for --with", hint="give name and version, as in redis==7.4.1")
    return match["name"], match["version"]


def _refuse(chosen: Mapping[str, str], of: str) -> None:
    """Raises UsageProblem if a version was chosen that would have no effect."""
    if chosen:
        raise UsageProblem(
            f"the version of {', '.join(chosen)} cannot be chosen for {of}",
            hint="--with and @VERSION are for node and for clients with their own environment",
        )


def find_toolchain(node: str, announce: Callable[[str], None], oracle: str = "") -> Toolchain:
    """Find Node (`node`: a path or command, "" for what this machine has) and install the oracle's package once.

    `oracle`: a version of bullmq, also as `node@VERSION`, or a word such as `newest-6`; "" is the pinned version.
    Raises a Problem that names what is missing, or an installed file that has changed since npm installed it.
    """
    node_binary = find_node(node or None)
    package = ensure_bullmq(node_binary, oracle_version(node_binary, oracle), announce=announce)
    return Toolchain(node_binary, package, announce)


def oracle_version(node: NodeBinary, oracle: str) -> str:
    """The exact version of an oracle, as written by the user. Raises UsageProblem if it is not a version."""
    if not oracle:
        return BULLMQ_VERSION
    name, _, version = oracle.rpartition("@")
    if name not in {"", "node"}:
        raise UsageProblem(f"invalid --oracle {oracle!r}: the oracle is a version of Node's BullMQ", hint=VERSION_HINT)
    return exact_version(node, version)
