"""A setting that is read and ignored is a promise broken in silence: each is used, or its page says that it is not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

from deploy import reference, sections
from tests.tidy.house import ROOT

SAID_TO_HAVE_NONE = {"Tenant.caps"}
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


def test_every_setting_is_used_or_said_to_have_no_effect() -> None:
    text = users()
    unused = {f"{section}.{field}" for section, field in fields() if not re.search(rf"\.{field}\b", text)}
    assert unused == SAID_TO_HAVE_NONE


def test_the_page_of_settings_names_those_without_effect() -> None:
    said = re.findall(r"without effect in this\s+release: ([^|]*?)\n\n", reference.pages()["settings.md"])
    assert all(name.partition(".")[2] in " ".join(said) for name in SAID_TO_HAVE_NONE)
