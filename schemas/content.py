"""What a template made of one delivery: the parts that a channel can show."""

from __future__ import annotations

from typing import NamedTuple


class Content(NamedTuple):
    """Empty parts are absent. html is escaped already; data is a JSON object as text, "" when the template has none."""

    text: str
    subject: str = ""
    title: str = ""
    html: str = ""
    data: str = ""
