"""The patches of tests/teeth still fit the code, and the tests they name are there. `make test-teeth` runs them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.teeth import catalogue
from tests.teeth.patch import NoLongerApplies, Patch
from tests.tidy.house import ROOT

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
PROMISES = range(1, 11)


def misfits(patch: Patch) -> Iterator[str]:
    """Why this patch breaks nothing any more."""
    try:
        broken = patch.broken(ROOT)
        if patch.file.endswith(".py"):
            ast.parse(broken)
    except NoLongerApplies as error:
        yield str(error)
    except SyntaxError as error:
        yield f"{patch.name}: makes {patch.file} unreadable: {error}"


def node_ids(path: str) -> Iterator[str]:
    """Node ids of a file's functions and methods, without parameters."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, FUNCTION):
            yield f"{path}::{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from (f"{path}::{node.name}::{inner.name}" for inner in node.body if isinstance(inner, FUNCTION))


def test_every_patch_still_applies() -> None:
    found = [misfit for patch in catalogue.PATCHES for misfit in misfits(patch)]
    assert not found, "\n".join(found)


def test_every_test_that_a_patch_names_is_there() -> None:
    named = {patch.test.partition("[")[0] for patch in catalogue.PATCHES}
    assert named - {test for path in {test.partition("::")[0] for test in named} for test in node_ids(path)} == set()


def test_every_promise_is_broken_by_some_patch_and_each_patch_has_a_name_of_its_own() -> None:
    assert set(PROMISES) - {patch.promise for patch in catalogue.PATCHES} == set()
    assert [name for name, times in Counter(patch.name for patch in catalogue.PATCHES).items() if times > 1] == []
