"""What import contracts cannot say: who may touch a library, the clock, chance, the environment; no dead file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "retry_topics", "producers", "streams", "consumers", "deploy")

DOORS = {
    "confluent_kafka": {
        "producers.publisher",
        "consumers.engine",
        "streams.log_reader",
        "streams.leader",
        "deploy.provision",
    },
    "faust": {"streams.agents", "streams.faust_patches"},
    "redis": {"deploy.redis_client"},
}
"""Library -> modules that may import it at run time (imports for type checking only are free)."""

GROUND_LIBRARIES = {"fastavro", "prometheus_client"}
CLOCK_OWNERS = {"schemas.clock"}
BANNED = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("os", "environ"),
    ("os", "getenv"),
}


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            yield name, ast.parse(path.read_text())


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


def test_the_import_contracts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    failed = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert not failed, capsys.readouterr().out


@pytest.mark.parametrize("library", DOORS)
def test_only_the_doors_know_a_client(library: str) -> None:
    users = {name for name, tree in modules(*ROOMS) if library in set(imported(tree))}
    assert users == DOORS[library]


def test_the_ground_stands_on_the_standard_library_and_two_more() -> None:
    import sys

    allowed = GROUND_LIBRARIES | set(sys.stdlib_module_names) | {"schemas"}
    found = {(name, library) for name, tree in modules("schemas") for library in imported(tree)}
    assert {pair for pair in found if pair[1] not in allowed} == set()


def test_time_chance_and_the_environment_arrive_as_arguments() -> None:
    offenders = [
        f"{name}:{node.lineno} {node.value.id}.{node.attr}"
        for name, tree in modules(*(room for room in ROOMS if room != "deploy"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and name not in CLOCK_OWNERS
        if (node.value.id, node.attr) in BANNED or (node.value.id == "random" and node.attr != "Random")
    ]
    assert offenders == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_docstring_names_its_modules_in_reading_order(room: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
    entries = {
        path.stem if path.is_file() else path.name
        for path in (ROOT / room).iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
    }
    words = set(docstring.replace(",", " ").replace(".", " ").replace(":", " ").split())
    assert entries - words == set()


def test_no_file_is_dead() -> None:
    trees = dict(modules(*ROOMS))
    used = {"deploy.cli", *ROOMS}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    dead = [name for name in trees if name not in used and not any(other.startswith(f"{name}.") for other in trees)]
    assert dead == []
