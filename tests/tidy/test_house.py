"""What import contracts cannot say: who may touch a library, the clock, chance, the environment; no dead file."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.house import ROOMS, ROOT, imported, modules, package_docstring, packages, parts_of, strings

DOORS = {
    "confluent_kafka": {
        # The log, written and read.
        "producers.publisher",
        "streams.log_reader",
        "streams.asking",
        "streams.tails",
        "streams.leader",
        # The one consumer under every handler, and its thread.
        "consumers.loop.kafka_side",
        "consumers.loop.assignment",
        "consumers.loop.commits",
        "consumers.loop.pressure",
        # The broker itself.
        "deploy.broker_state",
        "deploy.provision",
        "deploy.ground",
        "deploy.local.kafka",
    },
    "faust": {"streams.agents", "streams.faust_patches"},
    "mode": {"streams.faust_patches"},
    "aiokafka": {"streams.faust_patches"},
    "rocksdict": {"streams.row_store"},
    "redis": {
        # Opened and its errors made ours; asked; listened to. The rooms are handed `schemas.trips`.
        "deploy.redis_client",
        "deploy.redis_trips",
        "deploy.redis_news",
        "deploy.local.redis",
    },
    "hiredis": {"deploy.redis_trips"},
    "httptools": {"consumers.providers.http_pool", "deploy.simulators.http_provider"},
    "jinja2": {"consumers.render", "consumers.sandbox"},
}
"""Library -> modules that may import it at run time. What needs it only for a type says so by TYPE_CHECKING."""

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


def test_the_import_contracts_hold() -> None:
    # In a process of its own: it configures logging for good, and later tests would hear nothing of our loggers.
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    checked = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("library", DOORS)
def test_only_the_doors_know_a_client(library: str) -> None:
    users = {name for name, tree in modules(*ROOMS) if library in set(imported(tree))}
    assert (sorted(users - DOORS[library]), sorted(DOORS[library] - users)) == ([], [])


def test_the_ground_stands_on_the_standard_library_and_two_more() -> None:
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


@pytest.mark.parametrize("package", packages())
def test_a_packages_docstring_names_its_modules_in_reading_order(package: str) -> None:
    named = [word for word in package_docstring(package).split("`")[1::2] if word.isidentifier()]
    missing, twice = parts_of(package) - set(named), {word for word in named if named.count(word) > 1}
    assert (missing, twice & parts_of(package)) == (set(), set())


def test_no_file_is_dead() -> None:
    trees = dict(modules(*ROOMS))
    used = {"deploy.cli", *ROOMS}.union(*(_used_by(tree) for tree in trees.values()))
    dead = [name for name in trees if name not in used and not any(other.startswith(f"{name}.") for other in trees)]
    assert dead == []


def _used_by(tree: ast.Module) -> Iterator[str]:
    """Modules that this one imports, or names in a string: some are loaded only when their role is started."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.JoinedStr) and isinstance(first := node.values[0], ast.Constant):
            yield from (str(first.value) + name for name in strings(tree))
    yield from strings(tree)
