"""Records what a release writes: `python -m tests.unit.schemas.record_released [--unreleased]`.

One file per schema id: its canonical form and the bytes of the sample message. Without the flag only new ids are
recorded. With it the current schemas are recorded anew, which is right only for ids that no release has yet.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastavro.schema import to_parsing_canonical_form

from schemas import codec, schema_files
from tests.unit.schemas.samples import CLASSES, sample

RELEASED = Path(__file__).parent / "released"


def canonical(schema: schema_files.Schema) -> str:
    """What decides about the bytes: no docs, no defaults."""
    return str(to_parsing_canonical_form(codec.plain(schema.document)))


def path_of(schema: schema_files.Schema) -> Path:
    return RELEASED / f"{schema.name}.{schema.id}.json"


def record(again: bool) -> None:
    schemas = schema_files.load()
    for message in CLASSES:
        schema = schemas.current(message.__name__)
        if again or not path_of(schema).exists():
            content = {"canonical": canonical(schema), "bytes": codec.encode(sample(message)).hex()}
            path_of(schema).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    record("--unreleased" in sys.argv[1:])
