"""The source and the pages as the tidy tests see them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "retry_topics", "producers", "streams", "consumers", "deploy")
BESIDE = "Beside it"
"""In a package's docstring: what comes after is not on the road of a message."""


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """(dotted name, source) of every module of these rooms; a package by its own name."""
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield dotted(path), ast.parse(path.read_text())


def packages(*rooms: str) -> list[str]:
    """Dotted names of all packages of these rooms (of all rooms when none is named), outer ones first."""
    found = [path for room in rooms or ROOMS for path in sorted((ROOT / room).rglob("__init__.py"))]
    return [dotted(path) for path in found]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def package_docstring(package: str) -> str:
    return ast.get_docstring(ast.parse((_folder(package) / "__init__.py").read_text())) or ""


def parts_of(package: str) -> set[str]:
    """Names of the modules and packages inside a package."""
    inside = {path.stem for path in _folder(package).glob("*.py")} - {"__init__", "__main__"}
    return inside | {path.parent.name for path in _folder(package).glob("*/__init__.py")}


def on_the_road(package: str) -> list[str]:
    """Paths of the package's modules that a message passes, in reading order, by its docstring."""
    told = package_docstring(package).partition(BESIDE)[0].split("`")[1::2]
    paths = [_folder(package) / f"{name}.py" for name in told]
    return [path.relative_to(ROOT).as_posix() for path in paths if path.exists()]


def imported(tree: ast.Module) -> Iterator[str]:
    """Top-level names of libraries that a module imports at run time."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def strings(tree: ast.Module) -> set[str]:
    """Every text in a module that could name a module."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and value.replace(".", "_").isidentifier()}


def _folder(package: str) -> Path:
    return ROOT.joinpath(*package.split("."))
