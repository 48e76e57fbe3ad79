"""What the verbs `load`, `snapshot` and `diff` share on the command line. No Spark: it may not even be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from conformance.problems import EnvironmentProblem, UsageProblem

Verb = TypeVar("Verb", bound=Callable[..., Any])

_NEEDED = ("pyspark", "pyarrow", "pandas", "hdrh", "matplotlib")


ARCHIVES = "spark.archives"
"""Spark's property for files that executors unpack."""

UNPACKED = "environment"
"""The folder into which they unpack what was packed for them."""


def _remember(context: click.Context, _: click.Parameter, archives: Path | None) -> None:
    context.meta[ARCHIVES] = archives


def spark_options(verb: Verb) -> Verb:
    """Options about Spark itself; the verb takes `master`, `memory` and `conf`, which `--archives` is a part of."""
    for option in (
        click.option(
            "--archives",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            expose_value=False,
            callback=_remember,
            help="What `python -m reports.packed` has packed, for executors that have nothing installed.",
        ),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Further Spark property; repeatable."),
        click.option("--memory", default="2g", show_default=True, help="Memory of Spark's driver."),
        click.option(
            "--master", default="local[*]", show_default=True, help="Spark master: local[N], spark://…, yarn."
        ),
    ):
        verb = option(verb)
    return verb


def require_spark() -> None:
    """Raise EnvironmentProblem where the extra `spark` is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(
            f"this needs the extra `spark`, which is not installed (missing: {', '.join(missing)})",
            hint="pip install 'WHERE[spark]', where WHERE is the kit's checkout or wheel",
        )


def properties(conf: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` as a mapping, with the archive that was given. Raises UsageProblem."""
    for setting in conf:
        if "=" not in setting:
            raise UsageProblem(f"--conf {setting}: there is no `=`", hint="as in --conf spark.executor.memory=4g")
    context = click.get_current_context(silent=True)
    archives: Path | None = context.meta.get(ARCHIVES) if context is not None else None
    packed = {} if archives is None else {ARCHIVES: f"{archives.absolute()}#{UNPACKED}"}
    return {**packed, **dict(setting.split("=", 1) for setting in conf)}
