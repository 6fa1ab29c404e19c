"""Goal: an operator sees every difference, and none of the changes can lose or misplace what a topic holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from deploy import blueprint
from deploy.blueprint import Blueprint, Change, Kind
from deploy.broker_state import Found, FoundTopic
from schemas.topics import Topics

TOPICS = Topics()
LANE, HOLD, STATUS, CHANGELOG = TOPICS.lane("push", "bulk"), TOPICS.hold, TOPICS.status, TOPICS.status_changelog
GROUP = TOPICS.group("work push.bulk")


def wanted(*names: str, production: bool = False, copies: int = 1, groups: bool = False) -> Blueprint:
    whole = blueprint.blueprint(TOPICS, production, copies)
    chosen = {GROUP: whole.groups[GROUP]} if groups else {}
    return replace(whole, specs=tuple(spec for spec in whole.specs if spec.name in names), groups=chosen)


def as_wanted(plan: Blueprint, copies: int = 1) -> dict[str, FoundTopic]:
    """A broker of the laptop's size that has it all."""
    return {spec.name: FoundTopic(spec.partitions, copies, plan.config(spec)) for spec in plan.specs}


def differences(
    plan: Blueprint, topics: Mapping[str, FoundTopic], committed: Mapping[str, frozenset[tuple[str, int]]] | None = None
) -> list[Change]:
    return blueprint.differences(plan, Found(topics, committed or {}))


def kinds(changes: list[Change]) -> list[tuple[Kind, str, str]]:
    return [(change.kind, change.name, change.wanted.split(";")[0].split(",")[0]) for change in changes]


def test_nothing_is_planned_where_everything_is_right() -> None:
    plan = wanted(LANE, HOLD, STATUS, CHANGELOG)
    assert differences(plan, as_wanted(plan)) == []


def test_a_missing_topic_is_created_with_the_size_of_the_place() -> None:
    assert kinds(differences(wanted(LANE), {})) == [(Kind.CREATE, LANE, "4")]
    assert kinds(differences(wanted(LANE, production=True), {})) == [(Kind.CREATE, LANE, "12")]


def test_a_setting_that_drifted_is_named_with_both_values() -> None:
    plan = wanted(LANE)
    topic = as_wanted(plan)[LANE]
    drifted = replace(topic, config={**topic.config, "retention.ms": "60000"})
    (change,) = differences(plan, {LANE: drifted})
    assert str(change) == f"set {LANE}: retention.ms is 60000, wanted 259200000"


def test_partitions_are_added_to_a_lane_and_never_taken_away() -> None:
    plan = wanted(LANE, production=True)
    topic = as_wanted(plan)[LANE]
    assert kinds(differences(plan, {LANE: topic})) == [(Kind.PARTITIONS, LANE, "12")]
    (kept,) = differences(plan, {LANE: replace(topic, partitions=20)})
    assert (kept.kind, kept.now) == (Kind.KEPT, "20")


def test_what_stays_as_it_is_is_told_as_kept_and_never_as_done() -> None:
    plan = wanted(LANE, production=True)
    topic = as_wanted(plan)[LANE]
    (grows,) = differences(plan, {LANE: topic})
    assert grows.told(applied=True) == f"done add partitions {LANE}: partitions is 4, wanted 12"
    assert grows.told(applied=False) == f"would add partitions {LANE}: partitions is 4, wanted 12"
    (kept,) = differences(plan, {LANE: replace(topic, partitions=20)})
    assert kept.told(applied=True) == f"kept {LANE}: partitions is 20, wanted 12; more do no harm"
    (conflict,) = differences(wanted(LANE, copies=3), as_wanted(wanted(LANE, copies=3), 1))
    assert conflict.told(applied=False).startswith(f"conflict {LANE}: replicas is 1")


def test_a_topic_whose_keys_must_stay_is_cut_anew_only_while_it_is_empty() -> None:
    plan = wanted(HOLD, production=True)
    topic = as_wanted(plan)[HOLD]
    assert kinds(differences(plan, {HOLD: topic})) == [(Kind.PARTITIONS, HOLD, "12")]
    (kept,) = differences(plan, {HOLD: replace(topic, has_records=True)})
    assert kept.kind is Kind.KEPT
    assert "keys would move" in kept.wanted


def test_the_status_table_is_cut_like_what_its_source_has() -> None:
    plan = wanted(STATUS, CHANGELOG, production=True)
    source = replace(as_wanted(plan)[STATUS], has_records=True)
    changes = differences(plan, {STATUS: source})
    assert kinds(changes) == [(Kind.KEPT, STATUS, "12"), (Kind.CREATE, CHANGELOG, "4")]


def test_the_status_table_grows_together_with_its_empty_source() -> None:
    plan = wanted(STATUS, CHANGELOG, production=True)
    changes = differences(plan, as_wanted(plan))
    assert kinds(changes) == [(Kind.PARTITIONS, STATUS, "12"), (Kind.PARTITIONS, CHANGELOG, "12")]


@pytest.mark.parametrize(("partitions", "has_records"), [(8, False), (2, True)])
def test_a_status_table_cut_differently_from_its_source_needs_a_person(partitions: int, has_records: bool) -> None:
    plan = wanted(STATUS, CHANGELOG)
    found = as_wanted(plan)
    found[CHANGELOG] = replace(found[CHANGELOG], partitions=partitions, has_records=has_records)
    (conflict,) = differences(plan, found)
    assert conflict.kind is Kind.CONFLICT
    assert "like delivery.status" in conflict.wanted


def test_too_few_copies_for_the_writes_to_be_accepted_are_a_conflict() -> None:
    plan = wanted(LANE, copies=3)
    assert plan.config(plan.spec(LANE))["min.insync.replicas"] == "2"
    assert differences(plan, as_wanted(plan, 3)) == []
    assert [change.kind for change in differences(plan, as_wanted(plan, 2))] == [Kind.KEPT]
    assert [change.kind for change in differences(plan, as_wanted(plan, 1))] == [Kind.CONFLICT]


@pytest.mark.parametrize(("copies", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_one_broker_may_be_away_wherever_there_are_copies(copies: int, in_sync: str) -> None:
    plan = wanted(LANE, copies=copies)
    assert plan.config(plan.spec(LANE))["min.insync.replicas"] == in_sync


def test_a_new_group_gets_a_first_offset_for_every_partition() -> None:
    plan = wanted(LANE, groups=True)
    (change,) = differences(plan, as_wanted(plan))
    assert (change.kind, change.name, change.what, change.partitions) == (Kind.OFFSETS, GROUP, LANE, (0, 1, 2, 3))


def test_a_group_with_some_offsets_gets_only_those_that_are_missing() -> None:
    plan = wanted(LANE, groups=True)
    (change,) = differences(plan, as_wanted(plan), {GROUP: frozenset({(LANE, 0), (LANE, 2)})})
    assert change.partitions == (1, 3)


def test_a_group_also_gets_offsets_for_partitions_that_are_about_to_be_added() -> None:
    plan = wanted(LANE, production=True, groups=True)
    committed = {GROUP: frozenset((LANE, p) for p in range(4))}
    changes = differences(plan, as_wanted(plan), committed)
    assert changes[-1].partitions == tuple(range(4, 12))
