"""A stream of bytes as recipients: NDJSON, or CSV with a header row. A wrong line refuses the whole stream.

Nothing is held beyond the line in hand. Downstream: `upload.py`.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import pydantic

from producers import fields, plain_lines
from producers.request_bodies import RecipientBody, ToBody
from schemas.errors import Refused
from schemas.messages import Recipient

LINE_MAX = 65_536
COLUMNS_MAX = 500
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FIELD = "recipients"
FORMAT = """One recipient a line, as `application/x-ndjson` or `text/csv` (or a file named .csv). \
NDJSON: objects like those in `recipients`. CSV: a header row names the columns; `user_id` must be one, `to.email`, \
`to.phone`, `to.locale` and `to.time_zone` say how to reach somebody without a profile, and every other column is a \
value for the template: `name`, not `params.name`"""
"""As the callers of the API are told."""
_TO, _PARAMS = "to.", "params."
_OF_CONTACT = ToBody.model_fields.keys() - {"devices"}
"""What a column can say of how to reach somebody."""


class Reader(Protocol):
    """Turns whole lines, in order, into recipients; raises Refused naming the line."""

    def take(self, lines: Sequence[bytes]) -> list[Recipient]: ...

    def end(self) -> list[Recipient]:
        """What the last lines still held."""
        ...


async def recipients(chunks: AsyncIterator[bytes], reader: Reader) -> AsyncIterator[list[Recipient]]:
    """Recipients in the order of their lines, as many at a time as a chunk brings."""
    rest, number = b"", 0
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if number == 0 and lines:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        number += len(lines)
        if len(rest) > LINE_MAX:
            raise refused(number + 1, f"is longer than {LINE_MAX} bytes")
        yield reader.take(lines)
    yield [*reader.take([rest if number else rest.removeprefix(BYTE_ORDER_MARK)]), *reader.end()]


def refused(line: int, text: str) -> Refused:
    return Refused(FIELD, f"line {line}: {text}")


class Ndjson:
    """One JSON object a line; blank lines are skipped. now_ms: what counts as now for all of them."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._line = 0

    def take(self, lines: Sequence[bytes]) -> list[Recipient]:
        found = []
        for line in lines:
            self._line += 1
            if line and not line.isspace():
                found.append(self._recipient(line))
        return found

    def end(self) -> list[Recipient]:
        return []

    def _recipient(self, line: bytes) -> Recipient:
        if len(line) > LINE_MAX:
            raise refused(self._line, f"is longer than {LINE_MAX} bytes")
        if (plain := plain_lines.recipient(line)) is not None:
            return plain
        try:
            return RecipientBody.model_validate_json(line).recipient(self._now_ms)
        except pydantic.ValidationError as error:
            first = fields.refusal(error, RecipientBody)
            raise refused(self._line, "is not valid JSON" if first.status == 400 else str(first)) from None
        except Refused as error:
            raise refused(self._line, str(error)) from None


class Csv:
    """`user_id`, `to.email`, `to.phone`, `to.locale`, `to.time_zone`; every other column is a param.

    An empty cell of a `to` column is absent, of a param an empty text. Quoted cells may hold line breaks.
    A column `email` without `to.email` beside it is refused: it would reach nobody, and nobody would be told.
    now_ms: what counts as now for all of them.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._line = 0
        self._header: list[str] = []
        self._open: list[str] = []
        self._open_size = 0
        self._open_quotes = 0

    def take(self, lines: Sequence[bytes]) -> list[Recipient]:
        found = []
        for line in lines:
            self._line += 1
            text = self._decoded(line)
            self._open.append(text)
            self._open_size += len(text) + 1
            self._open_quotes += text.count('"')
            if self._open_quotes % 2 == 0:
                found.extend(self._row())
            elif self._open_size > LINE_MAX:
                raise self._endless()
        return found

    def end(self) -> list[Recipient]:
        if self._open:
            raise self._endless()
        if not self._header:
            raise refused(1, "a header row with user_id must come first")
        return []

    def _endless(self) -> Refused:
        return refused(self._line - len(self._open) + 1, "a quoted cell does not end")

    def _decoded(self, line: bytes) -> str:
        if len(line) > LINE_MAX:
            raise refused(self._line, f"is longer than {LINE_MAX} bytes")
        try:
            return line.decode().removesuffix("\r")
        except UnicodeDecodeError:
            raise refused(self._line, "is not UTF-8") from None

    def _row(self) -> list[Recipient]:
        """The recipient in the lines in hand; none for the header and for blank lines."""
        text = "\n".join(self._open)
        self._open, self._open_size, self._open_quotes = [], 0, 0
        if not text.strip():
            return []
        try:
            [cells] = csv.reader([text], strict=True)
        except (csv.Error, ValueError) as error:
            raise refused(self._line, f"is not CSV: {error}") from None
        if not self._header:
            self._header = self._checked_header(cells)
            return []
        return [self._recipient(cells)]

    def _checked_header(self, cells: list[str]) -> list[str]:
        names = [cell.strip() for cell in cells]
        if "user_id" not in names:
            raise refused(self._line, "the header row must name the column user_id")
        if len(set(names)) < len(names) or "" in names or len(names) > COLUMNS_MAX:
            raise refused(self._line, f"the columns need names, each used once, {COLUMNS_MAX} at most")
        for name in names:
            if wrong := _misnamed(name, names):
                raise refused(self._line, f"the column {name} {wrong}")
        return names

    def _recipient(self, cells: list[str]) -> Recipient:
        if len(cells) != len(self._header):
            raise refused(self._line, f"has {len(cells)} cells, the header row has {len(self._header)}")
        body: dict[str, Any] = {"params": {}}
        for name, cell in zip(self._header, cells, strict=True):
            if name == "user_id":
                body["user_id"] = cell
            elif name.startswith(_TO):
                if cell:
                    body.setdefault("to", {})[name.removeprefix(_TO)] = cell
            else:
                body["params"][name] = cell
        try:
            return RecipientBody.model_validate(body).recipient(self._now_ms)
        except pydantic.ValidationError as error:
            raise refused(self._line, str(fields.refusal(error, RecipientBody))) from None
        except Refused as error:
            raise refused(self._line, str(error)) from None


def _misnamed(name: str, names: Sequence[str]) -> str:
    """Why a column cannot be meant as the value for a template that it would be, and what to write; else ""."""
    if value := name.removeprefix(_PARAMS) if name.startswith(_PARAMS) else "":
        return f"is not known; a value for the template is named without {_PARAMS}: {value}"
    if name.startswith(("device.", "devices.")):
        return "cannot stand in a table; store devices with the user, or send NDJSON"
    if name in _OF_CONTACT and _TO + name not in names:
        return f"would only be a value for the template; write {_TO}{name} (as well, if the template shows it)"
    return ""
