"""Pages that lead somewhere and name what exists, and a tree that names no machine of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import metrics
from tests.tidy.house import ROOT, on_the_road, packages

PAGES = [path.relative_to(ROOT).as_posix() for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")))]
JOURNEY = ROOT / "docs" / "journey.md"
THE_ROAD = ("producers", "streams", "consumers", "retry_topics")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

TREE = ("Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "requirements.lock", ".ci")
FOLDERS = (*TREE, "benchmarks", "docs", "schemas", *THE_ROAD, "deploy", "tests")
OURS_ALONE = re.compile(
    r"(?<![\w.~-])/(work|home|root|Users|mnt|tmp/dev)/\w"
    r"|\b(pypi|npmjs|pythonhosted|crates)\.(org|io|com)\b|\brepo1?\.maven\b|--(extra-)?index-url"
)
"""Paths of one machine, and hosts of package registries: the reader has others."""


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Where a page leads inside the repository: (file, heading or "")."""
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            file, _, heading = target.partition("#")
            yield (page.parent / file).resolve() if file else page, heading


def headings(page: Path) -> set[str]:
    """What a link may name behind "#", as the host of the repository makes it of a page's headings."""
    found = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    lost = [
        f"{target}#{heading}"
        for target, heading in links(ROOT / page)
        if not target.exists() or (heading and heading not in headings(target))
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_a_page_names_exists(page: str) -> None:
    known = {next(iter(metric.describe())).name for metric in metrics.catalogue()}
    named = set(re.findall(r"`(tidings_[a-z_]+)`", (ROOT / page).read_text()))
    assert named - known == set()


@pytest.mark.parametrize("package", packages(*THE_ROAD))
def test_the_journey_passes_every_module_on_the_road(package: str) -> None:
    passed = {target for target, _ in links(JOURNEY)}
    assert [path for path in on_the_road(package) if ROOT / path not in passed] == []


def text_files() -> Iterator[Path]:
    for name in FOLDERS:
        paths = [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*"))
        yield from (path for path in paths if path.is_file() and path.suffix not in (".pyc", ".png"))


def test_the_tree_names_no_machine_and_no_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if OURS_ALONE.search(line)
    ]
    assert found == []
