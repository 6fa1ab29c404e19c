"""The bounded sandbox that templates run in; `render` builds on it.

Templates are written by colleagues, not by attackers, but one slip must not eat a worker: loops and calls
are counted, and whatever can blow a text up (repetition, padding, joining, captured blocks) is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import islice
from typing import Any

from jinja2 import BaseLoader, StrictUndefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

MAX_TURNS = 20_000
"""Turns of all loops and calls of one rendering together."""
MAX_BYTES = 262_144
"""Of one text."""
PARTS_A_LOOK = 32
"""A text's size is looked at after so many parts: nearly every text is done before the first look."""

_WIDE = re.compile(r"\d{4,}|\*")
_BLOWN_UP_BY = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "join", "replace", "format", "format_map"})
# Filters that can blow a text up and that no notification needs.
_LEFT_OUT = ("batch", "center", "pprint", "random", "slice", "wordwrap")
_COUNTED, _MEASURED = "counted_turns", "measured_text"


class TooMuch(SecurityError):
    """The template went over a bound."""


class Sandbox(ImmutableSandboxedEnvironment):
    """A jinja2 environment with bounds. One rendering at a time: `begin` starts a new count."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, loader: BaseLoader, autoescape: bool) -> None:
        super().__init__(
            loader=loader,
            autoescape=autoescape,
            undefined=StrictUndefined,
            auto_reload=False,
            cache_size=-1,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.turns = 0
        self.concat = measured_concat  # type: ignore[method-assign]
        self.globals = {"range": safe_range, "dict": dict, "namespace": self.globals["namespace"]}
        self.filters |= {_COUNTED: self._counted, _MEASURED: measured_join}
        for name, measure in _MEASURES.items():
            self.filters[name] = _guarded(self.filters[name], measure)
        for name in _LEFT_OUT:
            del self.filters[name]

    def begin(self) -> None:
        self.turns = 0

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self._turn()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            raise SecurityError("text % values is not allowed: use the format filter")
        _measure_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _BLOWN_UP_BY:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No str.format: the format filter is measured."""
        return

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in list(template.find_all(nodes.For)):
            loop.iter = _filtered(loop.iter, _COUNTED)
        for joined in list(template.find_all(nodes.Concat)):
            joined.nodes = [_filtered(nodes.List(joined.nodes, lineno=joined.lineno), _MEASURED)]
        return template

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._turn()
            yield item

    def _turn(self) -> None:
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise TooMuch(f"more than {MAX_TURNS} turns of loops and calls")


def measured_concat(parts: Iterable[str]) -> str:
    """The parts as one text. Raises TooMuch when it grows over MAX_BYTES."""
    texts: list[str] = []
    size, rest = 0, iter(parts)
    while True:
        some = list(islice(rest, PARTS_A_LOOK))
        text = "".join(some)
        size += len(text)
        if size > MAX_BYTES:
            raise TooMuch(f"a text longer than {MAX_BYTES} bytes")
        texts.append(text)
        if len(some) < PARTS_A_LOOK:
            return "".join(texts)


def measured_join(values: Iterable[Any]) -> str:
    """The values (of a ~ b) as one text, likewise."""
    return measured_concat(map(str, values))


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _measure_operands(operator: str, left: Any, right: Any) -> None:
    size = _size(left) + _size(right)
    if operator == "*":
        size *= max((abs(value) for value in (left, right) if isinstance(value, int)), default=1)
    if operator == "**" and isinstance(right, int | float) and abs(right) > 64:
        raise TooMuch("a power above 64")
    if size > MAX_BYTES:
        raise TooMuch(f"a value longer than {MAX_BYTES} bytes")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _guarded(function: Any, measure: Callable[..., int]) -> Any:
    """The filter, refused when its result would be too long; it keeps jinja2's marks (pass_eval_context...)."""
    passed = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def guard(*args: Any, **kwargs: Any) -> Any:
        if measure(*args[passed:], **kwargs) > MAX_BYTES:
            raise TooMuch(f"a text longer than {MAX_BYTES} bytes")
        return function(*args, **kwargs)

    return guard


def _formatted(value: Any, *_args: Any, **_kwargs: Any) -> int:
    return MAX_BYTES + 1 if _WIDE.search(str(value)) else 0


def _indented(s: Any, width: Any = 4, *_args: Any, **_kwargs: Any) -> int:
    text = str(s)
    return len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(str(width)))


def _replaced(s: Any, old: Any, new: Any, *_args: Any) -> int:
    text = str(s)
    return len(text) + (text.count(str(old)) * len(str(new)))


def _joined(value: Any, d: Any = "", *_args: Any, **_kwargs: Any) -> int:
    if not isinstance(value, list | tuple | dict | str):
        return MAX_BYTES + 1  # of a generator nobody knows how much it will give
    return sum(len(str(item)) for item in value) + len(value) * len(str(d))


_MEASURES: dict[str, Callable[..., int]] = {
    "format": _formatted,
    "indent": _indented,
    "replace": _replaced,
    "join": _joined,
}
