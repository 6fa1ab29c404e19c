"""Goal: a record kept from any release is still read, and a released schema id never changes its meaning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas import codec, messages, schema_files
from schemas.errors import Misconfigured, Poison
from schemas.messages import Suppression
from tests.unit.schemas.record_released import canonical, path_of
from tests.unit.schemas.samples import sample

SCHEMAS = schema_files.load()
OLD_FIELDS = ("tenant", "channel", "address_hash", "cause", "at_ms")


@pytest.mark.parametrize("schema", SCHEMAS.by_id.values(), ids=lambda s: f"{s.name}.{s.id}")
def test_a_released_schema_is_never_changed(schema: schema_files.Schema) -> None:
    assert path_of(schema).exists(), "record the new id: python -m tests.unit.schemas.record_released"
    released = json.loads(path_of(schema).read_text())["canonical"]
    assert canonical(schema) == released, f"{schema.name} {schema.id} was released: give the change a new id"


@pytest.mark.parametrize("schema", SCHEMAS.by_id.values(), ids=lambda s: f"{s.name}.{s.id}")
def test_records_of_every_release_are_read(schema: schema_files.Schema) -> None:
    message = getattr(messages, schema.name)
    kept = codec.decode(bytes.fromhex(json.loads(path_of(schema).read_text())["bytes"]), message)
    for field in schema.document["fields"]:
        assert getattr(kept, field["name"]) == getattr(sample(message), field["name"])


@pytest.mark.parametrize("schema", [SCHEMAS.current(name) for name in SCHEMAS.versions], ids=lambda s: s.name)
def test_the_same_message_gives_the_same_bytes_as_in_its_release(schema: schema_files.Schema) -> None:
    released = bytes.fromhex(json.loads(path_of(schema).read_text())["bytes"])
    assert codec.encode(sample(getattr(messages, schema.name))) == released


@pytest.fixture
def evolved(tmp_path: Path) -> codec.Codec:
    """The same schemas, but an older release wrote suppressions without a provider."""
    directory = tmp_path / "avro"
    shutil.copytree(schema_files.DIRECTORY, directory)
    (directory / "older").mkdir(exist_ok=True)
    current = json.loads((directory / "Suppression.avsc").read_text())
    older = {**current, "fields": [f for f in current["fields"] if f["name"] in OLD_FIELDS]}
    (directory / "older" / "Suppression.900.avsc").write_text(json.dumps(older))
    for field in current["fields"]:
        if field["name"] not in OLD_FIELDS:
            field["default"] = "unknown"
    (directory / "Suppression.avsc").write_text(json.dumps(current))
    change_ids(directory, {"Suppression": [900, 115]})
    return codec.Codec(schema_files.load(directory))


def change_ids(directory: Path, change: dict[str, Any]) -> None:
    ids = json.loads((directory / "ids.json").read_text())
    (directory / "ids.json").write_text(json.dumps(ids | change))


OLD_RECORD = b"\0" + (900).to_bytes(4, "big") + b"\x02t\x06sms\x04ab\x0cbounce\x54"


def test_a_record_of_an_older_schema_gets_the_default_of_the_new_field(evolved: codec.Codec) -> None:
    assert evolved.decode(OLD_RECORD, Suppression) == Suppression("t", "sms", "ab", "bounce", "unknown", 42)


def test_a_damaged_record_of_an_older_schema_is_refused(evolved: codec.Codec) -> None:
    for damaged in [OLD_RECORD[:n] for n in range(5, len(OLD_RECORD))] + [OLD_RECORD + b"\0"]:
        with pytest.raises(Poison) as refusal:
            evolved.decode(damaged, Suppression)
        assert refusal.value.reason == "undecodable"


def test_new_records_are_written_in_the_new_schema(evolved: codec.Codec) -> None:
    assert evolved.encode(sample(Suppression))[:5] == b"\0" + (115).to_bytes(4, "big")


def test_one_id_for_two_schemas_is_refused(tmp_path: Path) -> None:
    shutil.copytree(schema_files.DIRECTORY, tmp_path / "avro")
    change_ids(tmp_path / "avro", {"Suppression": [107]})
    with pytest.raises(Misconfigured, match="one id to two schemas"):
        schema_files.load(tmp_path / "avro")
