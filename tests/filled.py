"""Values of any record of the kit, with one text in every field that takes a text."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

Record = TypeVar("Record")
PLAIN: Mapping[Any, Any] = {int: 1, float: 1.5, bool: True, type(None): None, Path: Path("file")}
MANY = (list, tuple, set, frozenset, Sequence, AbstractSet)


def filled(kind: type[Record], text: str, **chosen: Any) -> Record:
    """A record whose texts are all this one, also in inner records. `chosen`: fields with other values, everywhere."""
    value: Record = kind(
        **{
            name: chosen[name] if name in chosen else _value(hint, text, chosen)
            for name, hint in get_type_hints(kind).items()
            if name in _fields(kind)
        }
    )
    return value


def _fields(kind: Any) -> set[str]:
    return {field.name for field in fields(kind) if field.init} if is_dataclass(kind) else set(kind.__struct_fields__)


def _value(hint: Any, text: str, chosen: Mapping[str, Any]) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is str or hint is Any:
        return text
    if hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated:
        return _value(inner[0], text, chosen)
    if origin is Literal:
        return inner[0]
    if origin in (Union, types.UnionType):
        return _value(next(part for part in inner if part is not type(None)), text, chosen)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {_value(inner[0], text, chosen): _value(inner[1], text, chosen)}
    if origin is tuple and Ellipsis not in inner:
        return tuple(_value(part, text, chosen) for part in inner)
    if origin in MANY:
        return (tuple if origin is tuple else origin if origin in (list, set, frozenset) else list)(
            [_value(inner[0], text, chosen)]
        )
    if origin is Callable or hint is Callable:
        return lambda *_: text
    assert is_dataclass(hint) or issubclass(hint, msgspec.Struct), f"no value for {hint}"
    return filled(hint, text, **chosen)
