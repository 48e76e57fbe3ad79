"""Reads a YAML file of the ledger into its declared shape."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")

# Every process of a run reads the whole ledger: libyaml takes a tenth of the time, where PyYAML was built with it.
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(file: Traversable, shape: type[T]) -> T:
    """The content of the file. Raises ValueError, naming the file, if it is not YAML or has another shape."""
    try:
        return msgspec.convert(yaml.load(file.read_text("utf-8"), LOADER), shape)  # noqa: S506 - both loaders are safe
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"ledger file {file.name}: {error}") from error
