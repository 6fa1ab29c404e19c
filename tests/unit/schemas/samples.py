"""Messages for tests: one fixed sample of each class, and hypothesis strategies for all of them."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from schemas import messages

CLASSES: tuple[type, ...] = typing.get_args(messages.Message)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def build(hint: Any) -> Callable[..., Any]:
    """The class as what it is called for."""
    return typing.cast(Callable[..., Any], hint)


def sample(message: type) -> Any:
    """A message whose every field differs from its default; the same on every run."""
    return _sample(message, message.__name__)


def _sample(hint: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _sample(next(a for a in arguments if a is not type(None)), path)
    if origin is tuple:
        return (_sample(arguments[0], f"{path}.0"), _sample(arguments[0], f"{path}.1"))
    if origin is dict:
        return {f"{path}.key": _sample(arguments[1], f"{path}.value")}
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return build(hint)(*(_sample(hints[f.name], f"{path}.{f.name}") for f in fields(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    return {str: f"{path} ü", int: 1_000 * len(path), bool: True, bytes: path.encode()}[hint]


def messages_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of the class or type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([st.none() if a is type(None) else messages_of(a) for a in arguments])
    if origin is tuple:
        return st.lists(messages_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(messages_of(arguments[0]), messages_of(arguments[1]), max_size=3)
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(build(hint), **{f.name: messages_of(hints[f.name]) for f in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return {str: TEXTS, int: LONGS, bool: st.booleans(), bytes: st.binary(max_size=200)}[hint]
