"""The syntax tree of a Lua script, and texts put in front of its statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import tree_sitter_lua
from tree_sitter import Language, Node, Parser

STATEMENTS = frozenset(
    {
        "assignment_statement",
        "break_statement",
        "for_statement",
        "function_call",
        "function_declaration",
        "if_statement",
        "repeat_statement",
        "return_statement",
        "variable_declaration",
        "while_statement",
    }
)
_BODIES = frozenset({"block", "chunk"})
_LOOPS_AND_FUNCTIONS = frozenset(
    {"for_statement", "function_declaration", "function_definition", "repeat_statement", "while_statement"}
)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_lua.language()))


def parse(text: bytes) -> Node:
    """The root of the tree. Raises ValueError if the text is not Lua."""
    root = _parser().parse(text).root_node
    if root.has_error:
        raise ValueError("not Lua")
    return root


def nodes_below(node: Node) -> Iterator[Node]:
    """The node and all that is in it, in the order of the text."""
    yield node
    for child in node.named_children:
        yield from nodes_below(child)


def is_statement(node: Node) -> bool:
    """Whether the node is a statement of its own; a call is one only where its value is not used."""
    return node.type in STATEMENTS and node.parent is not None and node.parent.type in _BODIES


def statement_of(node: Node) -> Node:
    """The innermost statement that the node is a part of."""
    found: Node | None = node
    while found is not None and not is_statement(found):
        found = found.parent
    return found or node


def function_of(node: Node) -> str:
    """Name of the innermost named function around the node, `main` outside of all."""
    found = node.parent
    while found is not None:
        name = found.child_by_field_name("name") if found.type == "function_declaration" else None
        if name is not None:
            return text_of(name)
        found = found.parent
    return "main"


def text_of(node: Node) -> str:
    """The node as it is written."""
    return (node.text or b"").decode()


def with_insertions(text: bytes, insertions: Iterable[tuple[int, str]]) -> bytes:
    """The text with further lines in it, each at the byte that is given for it.

    The lines of the text stay whole: by them the tap knows a script that is only like an official one.
    """
    for position, inserted in sorted(insertions, reverse=True):
        text = text[:position] + inserted.encode() + text[position:]
    return text


MOST_TURNS = 200_000
"""More turns than any scenario needs; they take Redis less than a second."""


def ends_for_certain(text: bytes) -> bytes:
    """The script with a fuse: after `MOST_TURNS` of its loops and functions it fails, instead of blocking Redis."""
    bodies = (
        node.child_by_field_name("body") for node in nodes_below(parse(text)) if node.type in _LOOPS_AND_FUNCTIONS
    )
    fused = with_insertions(text, [(body.start_byte, "kit_fuse()\n") for body in bodies if body is not None])
    fuse = (
        "local kit_turns = 0 local function kit_fuse() kit_turns = kit_turns + 1 "
        f'if kit_turns > {MOST_TURNS} then error("endless") end end\n'
    )
    return fuse.encode() + fused


def with_notes(text: bytes, key: str) -> bytes:
    """The script adds the first byte of every statement that it passes to the set `key`."""
    passed = [
        (node.start_byte, f"kit_passes({node.start_byte})\n") for node in nodes_below(parse(text)) if is_statement(node)
    ]
    noting = (
        "local kit_seen = {} local function kit_passes(place) if not kit_seen[place] then "
        f'kit_seen[place] = true redis.pcall("SADD", "{key}", place) end end\n'
    )
    return noting.encode() + with_insertions(text, passed)
