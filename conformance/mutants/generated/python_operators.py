"""Changes of a Python module: one function per operator, each from a node of the tree to edits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

from conformance.mutants.generated.change import Candidate, Edit, GeneratedMutant, Place, named_mutants

_BOUNDARIES: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
}
_OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_UNSEEN = frozenset({"cast", "debug", "info", "warning", "error", "exception"})
"""Calls that no other client can see: what goes to the log, and to the type checker."""
_TELEMETRY = frozenset({"addEvent", "describe", "recordException", "setAttributes", "trace"})
"""Calls about spans: no operation of a driver turns telemetry on."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True)
class Module:
    """A module's text and tree. `path` is below `reference_impl`."""

    path: str
    text: bytes
    tree: ast.Module = field(repr=False)

    @staticmethod
    def of(path: str, text: bytes) -> Module:
        """Raises SyntaxError if the text is not Python."""
        return Module(path, text, ast.parse(text))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) for line in self.text.splitlines(keepends=True))]

    def start(self, node: ast.expr | ast.stmt) -> int:
        """First byte of the node."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """The byte after the node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The node as it is written."""
        return self.text[self.start(node) : self.end(node)].decode()

    def replaced(self, node: ast.expr | ast.stmt, replacement: str) -> Edit:
        """Put something else in the node's place."""
        return Edit(self.start(node), self.end(node), replacement)


@dataclass(frozen=True)
class _Context:
    """The place of a node: its function (dotted), its statement, and the words next to it."""

    function: str = "module"
    definition: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    statement: ast.stmt | None = None
    words: Sequence[str] = ()


def python_mutants(module: Module, readers: Callable[[str], tuple[Place, ...]]) -> list[GeneratedMutant]:
    """Every mutant of a module. `readers`: where a name that is given a value outside of functions is read."""
    return named_mutants("python", module.path, module.text, _candidates(module, readers))


def _candidates(module: Module, readers: Callable[[str], tuple[Place, ...]]) -> Iterator[Candidate]:
    for node, scene in _walk(module.tree, _Context()):
        for operator, edits_of in OPERATORS.items():
            for edit in edits_of(module, node, scene):
                yield Candidate(operator, edit, scene.function, _places(module, scene, readers))


def _walk(node: ast.AST, scene: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    """Every node that decides what the client does: no types, docstrings, messages of exceptions or logs."""
    for child in ast.iter_child_nodes(node):
        if _is_unseen(node, child):
            continue
        inner = _inner(child, scene)
        yield child, inner
        yield from _walk(child, inner)


def _inner(node: ast.AST, scene: _Context) -> _Context:
    statement = node if isinstance(node, ast.stmt) and not isinstance(node, _SCOPES) else scene.statement
    if not isinstance(node, _SCOPES):
        return _Context(scene.function, scene.definition, statement, scene.words)
    name = node.name if scene.function == "module" else f"{scene.function}.{node.name}"
    if isinstance(node, ast.ClassDef):
        return _Context(name, scene.definition, None, scene.words)
    constants = [child for child in ast.walk(node) if isinstance(child, ast.Constant)]
    constants.sort(key=lambda each: (each.lineno, each.col_offset))
    return _Context(name, node, None, [word for constant in constants if (word := _word(constant))])


def _word(node: ast.AST) -> str:
    """The text of a word; empty for any other node, also for a text with spaces or signs."""
    match node:
        case ast.Constant(value=str(text)) if text.isidentifier():
            return text
    return ""


def _is_unseen(parent: ast.AST, node: ast.AST) -> bool:
    """Whether it is a type, a docstring, or a word for people."""
    if isinstance(node, ast.arg | ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_call_of(node.value, _UNSEEN | _TELEMETRY)
    if isinstance(parent, ast.withitem):
        return _is_call_of(node, _TELEMETRY)
    if isinstance(parent, ast.Raise):
        return isinstance(node, ast.Call)
    if isinstance(parent, ast.AnnAssign) and node is parent.annotation:
        return True
    if isinstance(parent, _FUNCTIONS) and (node is parent.returns or node in parent.decorator_list):
        return True
    if isinstance(parent, ast.ClassDef) and node in (*parent.decorator_list, *parent.bases):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_call_of(node: ast.AST, names: frozenset[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in names
    return False


def _places(module: Module, scene: _Context, readers: Callable[[str], tuple[Place, ...]]) -> tuple[Place, ...]:
    """The places of the change: its statement, the function with a changed default, or the readers of its name."""
    statement, definition = scene.statement, scene.definition
    if definition is not None:
        body = definition.body
        if statement is None:
            return (Place(module.path, body[0].lineno, body[-1].end_lineno or body[-1].lineno),)
        return (Place(module.path, statement.lineno, _end_of_header(statement)),)
    names = _names_given(statement)
    found = tuple(place for name in names for place in readers(name))
    return found or (Place(module.path, 1, module.text.count(b"\n") + 1),)


def _end_of_header(statement: ast.stmt) -> int:
    """The last line of a statement, without those in its block."""
    block = getattr(statement, "body", None)
    if isinstance(block, list) and block:
        return max(statement.lineno, int(block[0].lineno) - 1)
    return statement.end_lineno or statement.lineno


def _names_given(statement: ast.stmt | None) -> list[str]:
    """The names that a statement outside of functions gives a value."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


# Operators.


def _negate(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A condition becomes its opposite."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    yield from (module.replaced(test, f"(not ({module.source(test)}))") for test in tests)


def _shift_boundary(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A comparison holds one step earlier or later."""
    yield from _other_comparison(module, node, _BOUNDARIES)


def _swap_comparison(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A comparison says the opposite, also where it is only a part of a condition."""
    yield from _other_comparison(module, node, _OPPOSITES)


def _other_comparison(module: Module, node: ast.AST, signs: dict[type[ast.cmpop], str]) -> Iterator[Edit]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in signs:
        [right] = node.comparators
        sign = signs[type(node.ops[0])]
        yield module.replaced(node, f"({module.source(node.left)} {sign} {module.source(right)})")


def _swap_connective(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """`and` becomes `or`, and the other way round."""
    if isinstance(node, ast.BoolOp):
        sign = " or " if isinstance(node.op, ast.And) else " and "
        yield module.replaced(node, f"({sign.join(f'({module.source(value)})' for value in node.values)})")


def _off_by_one(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A whole number becomes its neighbours."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield module.replaced(node, f"{node.value + 1}")
        yield module.replaced(node, f"({node.value - 1})")


def _flip_constant(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """`True` becomes `False`, and the other way round."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield module.replaced(node, str(not node.value))


def _other_word(module: Module, node: ast.AST, scene: _Context) -> Iterator[Edit]:
    """A word (an option, an event, a state) becomes the next other word of the same function."""
    word = _word(node)
    if word and isinstance(node, ast.Constant):
        first = scene.words.index(word) if word in scene.words else 0
        others = [other for other in (*scene.words[first:], *scene.words[:first]) if other != word]
        yield from (module.replaced(node, f'"{other}"') for other in others[:1])


def _drop_call(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A call whose value is not used is left out."""
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            yield module.replaced(node, "pass")


def _drop_await(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A started call is not awaited."""
    if isinstance(node, ast.Await):
        yield module.replaced(node, module.source(node.value))


def _swap_arguments(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """Two neighbouring arguments change places."""
    if isinstance(node, ast.Call):
        for one, other in pairwise(node.args):
            texts = module.source(one), module.source(other)
            if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred) and texts[0] != texts[1]:
                yield Edit(module.start(one), module.end(other), f"{texts[1]}, {texts[0]}")


def _drop_argument(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """A named argument is left out: its default holds."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None:
                start = module.start(keyword.value) - len(f"{keyword.arg}=".encode())
                is_last = module.text[module.end(keyword.value) :].lstrip()[:1] == b")"
                end = module.end(keyword.value)
                yield Edit(start, end if is_last else module.text.index(b",", end) + 1, "")


def _drop_field(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """An entry of a dictionary is missing."""
    if isinstance(node, ast.Dict):
        entries = [
            (f"**({module.source(value)})" if key is None else f"{module.source(key)}: {module.source(value)}")
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        for index in range(len(entries)):
            yield module.replaced(node, "{" + ", ".join(entries[:index] + entries[index + 1 :]) + "}")


def _skip_branch(module: Module, node: ast.AST, _scene: _Context) -> Iterator[Edit]:
    """Nothing is done in one branch."""
    if isinstance(node, ast.If):
        branches = [node.body, node.orelse if not _is_elif(node) else []]
        for branch in branches:
            if branch and not isinstance(branch[0], ast.Pass | ast.Continue):
                yield Edit(module.start(branch[0]), module.end(branch[-1]), "pass")


def _is_elif(node: ast.If) -> bool:
    return len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)


Operator = Callable[[Module, ast.AST, _Context], Iterator[Edit]]
OPERATORS: dict[str, Operator] = {
    "negate": _negate,
    "boundary": _shift_boundary,
    "comparison": _swap_comparison,
    "connective": _swap_connective,
    "off-by-one": _off_by_one,
    "flip-constant": _flip_constant,
    "other-word": _other_word,
    "drop-call": _drop_call,
    "drop-await": _drop_await,
    "swap-arguments": _swap_arguments,
    "drop-argument": _drop_argument,
    "drop-field": _drop_field,
    "skip-branch": _skip_branch,
}
