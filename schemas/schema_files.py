"""The Avro schemas on disk: `avro/<Name>.avsc` is current, `avro/older/<Name>.<id>.avsc` what was written before.

`avro/ids.json` gives each message its ids, oldest first; the last one belongs to the current file. An id that
was released never changes its schema: to change a message, move the old file to `avro/older`, add a new id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import Misconfigured

DIRECTORY = Path(__file__).parent / "avro"


@dataclass(frozen=True, slots=True)
class Schema:
    """One released schema. version counts from 1 within a name; document is the parsed JSON."""

    id: int
    name: str
    version: int
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schemas:
    """All schemas by id, and each message's versions, oldest first."""

    by_id: Mapping[int, Schema]
    versions: Mapping[str, tuple[Schema, ...]]

    def current(self, name: str) -> Schema:
        """The schema this release writes."""
        return self.versions[name][-1]


def load(directory: Path = DIRECTORY) -> Schemas:
    """Reads them all. Raises Misconfigured when an id is used twice or its file is missing."""
    ids: dict[str, list[int]] = json.loads((directory / "ids.json").read_text())
    versions = {name: _versions(directory, name, numbers) for name, numbers in ids.items()}
    every = [schema for schemas in versions.values() for schema in schemas]
    by_id = {schema.id: schema for schema in every}
    if len(by_id) != len(every):
        raise Misconfigured(f"{directory / 'ids.json'} gives one id to two schemas")
    return Schemas(by_id, versions)


def _versions(directory: Path, name: str, ids: list[int]) -> tuple[Schema, ...]:
    paths = [directory / "older" / f"{name}.{number}.avsc" for number in ids[:-1]] + [directory / f"{name}.avsc"]
    return tuple(
        Schema(number, name, version, _document(path))
        for version, (number, path) in enumerate(zip(ids, paths, strict=True), start=1)
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read the schema {path}: {error}") from error
    return document
