"""A setting that is read and ignored is a promise broken in silence: each is used."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

from deploy import reference, sections
from schemas import policies
from tests.tidy.house import ROOT

TAKEN_WHOLE = {"QuietHours", "Caps"}


def fields() -> Iterator[tuple[str, str]]:
    """(class, field) of every section."""
    for name, section in vars(sections).items():
        if inspect.isclass(section) and issubclass(section, BaseModel) and section.__module__ == sections.__name__:
            yield from ((name, field) for field in section.model_fields if name not in TAKEN_WHOLE)


def users() -> str:
    """What uses settings: the roof, without the checks of how they fit together."""
    files = [path for path in sorted((ROOT / "deploy").rglob("*.py")) if path.name != "settings.py"]
    return "\n".join(path.read_text() for path in files)


def test_every_setting_is_used() -> None:
    text = users()
    assert [f"{section}.{field}" for section, field in fields() if not re.search(rf"\.{field}\b", text)] == []


def test_no_page_says_of_a_setting_that_it_has_no_effect() -> None:
    assert "without effect in this" not in " ".join(reference.pages()["settings.md"].split())


def test_every_key_of_a_template_is_explained() -> None:
    section = (ROOT / "docs/operating.md").read_text().partition("## A template's settings")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(policies.KEYS)
