"""Changes of a Lua script: one function per operator, each from a node of the tree to edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

from tree_sitter import Node

from conformance.mutants.generated.change import Candidate, Edit, GeneratedMutant, Place, named_mutants
from conformance.mutants.generated.lua_syntax import (
    function_of,
    is_statement,
    nodes_below,
    parse,
    statement_of,
    text_of,
)

_REDIS_CALLS = frozenset({"rcall", "redis.call", "redis.pcall"})
_OTHER_END = {
    "LPUSH": "RPUSH",
    "LPUSHX": "RPUSHX",
    "LPOP": "RPOP",
    "LEFT": "RIGHT",
    "ZPOPMIN": "ZPOPMAX",
    "ZRANGE": "ZREVRANGE",
    "ZRANGEBYSCORE": "ZREVRANGEBYSCORE",
}
_OTHER_END |= {other: one for one, other in _OTHER_END.items()}
_BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}
_CONNECTIVES = {"and": "or", "or": "and"}
_FIELD_COMMANDS = {"HSET": 2, "HMSET": 2, "XADD": 5}
"""Commands with pairs of field and value, and the position of the first pair (XADD key MAXLEN ~ n * field value)."""
_TTL_COMMANDS = {"PEXPIRE": 2, "EXPIRE": 2, "PSETEX": 2, "SETEX": 2}
_TTL_WORDS = frozenset({"PX", "EX"})


def lua_mutants(script: str, text: bytes) -> list[GeneratedMutant]:
    """Every mutant of a script. Raises ValueError if the text is not Lua."""
    return named_mutants("lua", script, text, _candidates(script, parse(text)))


def _candidates(script: str, root: Node) -> Iterator[Candidate]:
    for node in nodes_below(root):
        for operator, edits_of in OPERATORS.items():
            for edit in edits_of(node):
                start = statement_of(node).start_byte
                yield Candidate(operator, edit, function_of(node), (Place(script, start, start),))


def _replaced(node: Node, replacement: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, replacement)


def _negate(node: Node) -> Iterator[Edit]:
    """A condition becomes its opposite."""
    condition = node.child_by_field_name("condition")
    if condition is not None:
        # The spaces: a keyword may stand right before and after a condition in parentheses.
        yield _replaced(condition, f" not ({text_of(condition)}) ")


def _shift_boundary(node: Node) -> Iterator[Edit]:
    """A comparison holds one step earlier or later; equality becomes inequality, unless it is a condition by itself."""
    yield from _other_sign(node, _BOUNDARIES)


def _swap_connective(node: Node) -> Iterator[Edit]:
    """`and` becomes `or`, and the other way round."""
    yield from _other_sign(node, _CONNECTIVES)


def _other_sign(node: Node, signs: dict[str, str]) -> Iterator[Edit]:
    if node.type == "binary_expression" and not _is_condition(node, signs):
        yield from (_replaced(child, signs[child.type]) for child in node.children if child.type in signs)


def _is_condition(node: Node, signs: dict[str, str]) -> bool:
    """Whether the change would be the negation of a whole condition, which is another operator's."""
    parent = node.parent
    return (
        signs is _BOUNDARIES
        and parent is not None
        and parent.child_by_field_name("condition") == node
        and any(child.type in ("==", "~=") for child in node.children)
    )


def _off_by_one(node: Node) -> Iterator[Edit]:
    """A whole number becomes its neighbours."""
    if node.type == "number" and text_of(node).isdecimal():
        value = int(text_of(node))
        yield _replaced(node, str(value + 1))
        yield _replaced(node, str(value - 1) if value else "(-1)")


def _flip_constant(node: Node) -> Iterator[Edit]:
    """`true` becomes `false`, and the other way round."""
    if node.type in ("true", "false"):
        yield _replaced(node, "false" if node.type == "true" else "true")


def _drop_call(node: Node) -> Iterator[Edit]:
    """A call is left out; where its value is used, the value is nil."""
    if node.type == "function_call":
        if is_statement(node):
            yield _replaced(node, "")
        elif node.parent is not None and node.parent.type == "expression_list" and is_statement(statement_of(node)):
            yield _replaced(node, "nil")


def _swap_ends(node: Node) -> Iterator[Edit]:
    """A command works on the other end of a list, or of a sorted set."""
    for argument in _arguments(node)[:1] if _is_redis_call(node) else []:
        if _word(argument) in _OTHER_END:
            yield _replaced(argument, f'"{_OTHER_END[_word(argument)]}"')


def _other_word(node: Node) -> Iterator[Edit]:
    """A word (an event, a field, a state) becomes the next other word of the same function; never a command."""
    if _is_telling(node):
        yield from (_replaced(node, word) for word in _similar_words(node)[:1])


def _drop_argument(node: Node) -> Iterator[Edit]:
    """An argument is left out; the next ones take its place."""
    arguments = _arguments(node)
    kept = 2 if _is_redis_call(node) else 0
    if len(arguments) > max(kept, 1):
        yield from (_without(arguments, index, 1) for index in range(kept, len(arguments)))


def _drop_field(node: Node) -> Iterator[Edit]:
    """A pair of field and value is not written; an entry of a table is missing."""
    if node.type == "table_constructor":
        fields = [child for child in node.named_children if child.type == "field"]
        yield from (_without(fields, index, 1) for index in range(len(fields)))
        return
    arguments = _arguments(node)
    first = _FIELD_COMMANDS.get(_word(arguments[0]), 0) if arguments and _is_redis_call(node) else 0
    if first and len(arguments) > first + 2:
        pairs = range(len(arguments) - 2, first - 1, -2)
        yield from (_without(arguments, index, 2) for index in pairs)


def _other_ttl(node: Node) -> Iterator[Edit]:
    """A time to live is a thousand times as long."""
    if _is_redis_call(node):
        arguments = _arguments(node)
        place = _TTL_COMMANDS.get(_word(arguments[0])) if arguments else None
        if place is not None and place < len(arguments):
            yield _longer(arguments[place])
        yield from (_longer(after) for word, after in pairwise(arguments) if _word(word) in _TTL_WORDS)


def _longer(node: Node) -> Edit:
    return _replaced(node, f"1000 * ({text_of(node)})")


def _skip_branch(node: Node) -> Iterator[Edit]:
    """Nothing is done in one branch."""
    if node.type in ("if_statement", "elseif_statement", "else_statement"):
        body = node.child_by_field_name("body" if node.type == "else_statement" else "consequence")
        if body is not None:
            yield _replaced(body, "")


Operator = Callable[[Node], Iterator[Edit]]
OPERATORS: dict[str, Operator] = {
    "negate": _negate,
    "boundary": _shift_boundary,
    "connective": _swap_connective,
    "off-by-one": _off_by_one,
    "flip-constant": _flip_constant,
    "drop-call": _drop_call,
    "swap-ends": _swap_ends,
    "other-word": _other_word,
    "drop-argument": _drop_argument,
    "drop-field": _drop_field,
    "other-ttl": _other_ttl,
    "skip-branch": _skip_branch,
}


def _arguments(node: Node) -> list[Node]:
    """The arguments of a call, none for any other node."""
    given = node.child_by_field_name("arguments") if node.type == "function_call" else None
    return [child for child in given.named_children if child.type != "comment"] if given is not None else []


def _is_redis_call(node: Node) -> bool:
    name = node.child_by_field_name("name") if node.type == "function_call" else None
    return name is not None and text_of(name) in _REDIS_CALLS


def _word(node: Node) -> str:
    """The text of a string; empty for any other node."""
    content = node.child_by_field_name("content") if node.type == "string" else None
    return text_of(content) if content is not None else ""


def _is_command(node: Node) -> bool:
    """Whether the string is the name of a Redis command."""
    call = node.parent.parent if node.parent is not None else None
    return call is not None and _is_redis_call(call) and _arguments(call)[:1] == [node]


def _similar_words(node: Node) -> list[str]:
    """The other words of the function around, from here on and then from its beginning."""
    scope = node
    while scope.parent is not None and scope.type != "function_declaration":
        scope = scope.parent
    words = [each for each in _telling_words(scope) if _is_part(each) == _is_part(node)]
    after = [each for each in words if each.start_byte > node.start_byte]
    return [text_of(each) for each in (*after, *words) if _word(each) != _word(node)]


@lru_cache(maxsize=64)
def _telling_words(scope: Node) -> tuple[Node, ...]:
    return tuple(each for each in nodes_below(scope) if _is_telling(each))


def _is_telling(node: Node) -> bool:
    """Whether it is a word, and neither a command nor one of its signs."""
    return node.type == "string" and any(map(str.isalpha, _word(node))) and not _is_command(node)


def _is_part(node: Node) -> bool:
    """Whether the word is a part of a key."""
    return ":" in _word(node)


def _without(items: list[Node], index: int, count: int) -> Edit:
    """Leave out this many items of a list, with their commas."""
    if index + count < len(items):
        return Edit(items[index].start_byte, items[index + count].start_byte, "")
    start = items[index - 1].end_byte if index else items[index].start_byte
    return Edit(start, items[index + count - 1].end_byte, "")
