"""Marks that turn a function into a scenario. The function's docstring is the sentence that it checks.

`@scenario("requirement.id", …)` on `def test_x(client: Participant)`: run on the oracle, then on the client under test,
each on its own prefix, and compared. Plain assertions come from `conformance.participants.expect`.

`@handover("requirement.id", …)` on `def test_x(pauser, adder, resumer, worker)`: both on one prefix. The parameters are
roles (`participants/roles.py`), and it is run with every assignment of them to the client and its partner.

`@shared("requirement.id", …)` on `def test_x(client, oracle)`: both on one prefix, run once; without `oracle` the
client is alone, in what Node.js does not have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from conformance.participants.roles import ROLES, Assignment, assignments
from conformance.protocol.versions import check_range

if TYPE_CHECKING:
    import pytest

Tier = Literal["smoke", "core", "full"]
TIERS: tuple[Tier, ...] = ("smoke", "core", "full")
Style = Literal["differential", "handover", "shared"]
Need = Literal["", "cluster"]
ASSIGNMENT = "assignment"
"""The parameter of a hand-over: which client has which roles."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An executable check of some requirements. `gate/attribution.py` assigns each finding to one of them.

    `clock`: `frozen` if both drivers support it; `real` is the machine's clock. `without`: invariants that do not hold
    at the end of this scenario, by name, each with the reason (`worker-errors`: its workers may emit `error`).
    `compare`: whether the two snapshots must be equal (differential style only). `needs`: the required kind of Redis;
    with another kind the run leaves the scenario out and reports that. `bullmq`: the range of BullMQ versions whose
    behaviour it states, such as `<6`; another scenario covers the other versions. `cases`: ranges for some of its cases
    only, by a glob over their text in brackets (`paused-*`).
    """

    function: Callable[..., None]
    requirements: tuple[str, ...]
    style: Style
    tier: Tier
    clock: Literal["frozen", "real"]
    slow: bool = False
    compare: bool = True
    needs: Need = ""
    without: dict[str, str] = field(default_factory=dict)
    bullmq: str = ""
    cases: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError if a range of versions is invalid."""
        for versions in (self.bullmq, *self.cases.values()):
            check_range(versions)

    def ranges_of(self, parameters: str) -> list[str]:
        """The ranges of versions that must all hold for the case with these parameters, given as in its id."""
        return [self.bullmq, *(versions for case, versions in self.cases.items() if fnmatchcase(parameters, case))]

    @property
    def participants(self) -> tuple[str, ...]:
        """Its parameters that are participants, in order."""
        names = tuple(inspect.signature(self.function).parameters)
        possible: dict[Style, Collection[str]] = {
            "differential": ("client",),
            "handover": ROLES,
            "shared": ("client", "oracle"),
        }
        return tuple(name for name in names if name in possible[self.style])

    @property
    def name(self) -> str:
        """The function's name without `test_`."""
        return self.function.__name__.removeprefix("test_")

    @property
    def title(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or self.name).splitlines()[0]


def _mark(
    style: Style, requirements: tuple[str, ...], settings: dict[str, Any]
) -> Callable[[Callable[..., None]], Any]:
    if not requirements:
        raise TypeError("a scenario needs at least one requirement")

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        made = Scenario(function=function, requirements=requirements, style=style, **settings)
        if style == "handover" and len(made.participants) < len(("one side", "the other")):
            raise TypeError(f"{function.__name__} is not a hand-over: give it two parameters out of {', '.join(ROLES)}")
        return _as_test(made)

    return decorate


def scenario(
    *requirements: str,
    tier: Tier = "core",
    clock: Literal["frozen", "real"] = "frozen",
    slow: bool = False,
    compare: bool = True,
    needs: Need = "",
    without: dict[str, str] | None = None,
    bullmq: str = "",
    cases: dict[str, str] | None = None,
) -> Callable[[Callable[..., None]], Any]:
    """Mark a scenario that takes the same steps on oracle and client, on separate prefixes, and compares them."""
    settings = {"tier": tier, "clock": clock, "slow": slow, "compare": compare, "needs": needs, "bullmq": bullmq}
    return _mark("differential", requirements, {**settings, "without": without or {}, "cases": cases or {}})


def handover(
    *requirements: str,
    tier: Tier = "core",
    slow: bool = False,
    without: dict[str, str] | None = None,
    bullmq: str = "",
) -> Callable[[Callable[..., None]], Any]:
    """Mark a scenario with roles on one queue, run with every assignment to the two clients, on the real clock."""
    settings = {"tier": tier, "clock": "real", "slow": slow, "without": without or {}, "bullmq": bullmq}
    return _mark("handover", requirements, settings)


def shared(
    *requirements: str,
    tier: Tier = "core",
    slow: bool = False,
    without: dict[str, str] | None = None,
    bullmq: str = "",
) -> Callable[[Callable[..., None]], Any]:
    """Mark a scenario with client and oracle on one queue at the same time, on the real clock."""
    settings = {"tier": tier, "clock": "real", "slow": slow, "without": without or {}, "bullmq": bullmq}
    return _mark("shared", requirements, settings)


def also_in_core(cases: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run some cases of a scenario of tier `full` in `core` too: their texts in brackets, with ` | ` between them."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        function.core_cases = frozenset(cases.split(" | "))  # type: ignore[attr-defined]
        return function

    return decorate


def _as_test(made: Scenario) -> Callable[..., None]:
    """The pytest function: its fixtures are `runner` and the scenario's parameters that are not participants."""
    parameters = [
        parameter
        for name, parameter in inspect.signature(made.function).parameters.items()
        if name not in made.participants
    ]

    def test(runner: Any, request: pytest.FixtureRequest, **arguments: Any) -> None:
        runner.run(made, request, arguments)

    test.__name__ = made.function.__name__
    test.__doc__ = made.function.__doc__
    test.__module__ = made.function.__module__
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    fixtures = [inspect.Parameter("runner", kind), inspect.Parameter("request", kind)]
    assigned = [inspect.Parameter(ASSIGNMENT, kind)] if made.style == "handover" else []
    test.__signature__ = inspect.Signature([*fixtures, *assigned, *parameters])  # type: ignore[attr-defined]
    test.scenario = made  # type: ignore[attr-defined]
    test.pytestmark = list(getattr(made.function, "pytestmark", []))  # type: ignore[attr-defined]
    if made.style == "handover":
        import pytest  # noqa: PLC0415 - verbs without scenarios know tiers too, and start faster without it

        every = pytest.mark.parametrize(ASSIGNMENT, assignments(made.participants), ids=str)
        test.pytestmark.append(every.mark)  # type: ignore[attr-defined]
    return test


def tier_of(made: Scenario, arguments: Mapping[str, Any]) -> Tier:
    """The lowest tier that includes the scenario with these arguments.

    `full` for assignments beyond those of `core`; `core` for the cases that `also_in_core` names.
    """
    assignment = arguments.get(ASSIGNMENT)
    if isinstance(assignment, Assignment) and not assignment.in_core:
        return "full"
    return "core" if case_text(made, arguments) in core_cases_of(made) else made.tier


def least_tier_of(made: Scenario) -> Tier:
    """The lowest tier that includes any case of the scenario."""
    return "core" if core_cases_of(made) else made.tier


def case_text(made: Scenario, arguments: Mapping[str, Any]) -> str:
    """The arguments of a case in the order of the scenario's parameters: its text in brackets."""
    names = (ASSIGNMENT, *inspect.signature(made.function).parameters)
    return "-".join(str(arguments[name]) for name in names if name in arguments)


def core_cases_of(made: Scenario) -> frozenset[str]:
    """The cases that `also_in_core` names."""
    return getattr(made.function, "core_cases", frozenset())
