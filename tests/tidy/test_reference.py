"""Generated pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import reference

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", sorted(reference.pages()))
def test_a_generated_page_is_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text() == reference.pages()[page], "run `make docs`"
