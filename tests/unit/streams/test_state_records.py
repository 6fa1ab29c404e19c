"""What data teams read of a delivery, written piece by piece, is byte for byte what the codec writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, keys
from schemas.messages import DeliveryState, StatusEvent
from schemas.slots import Plan
from schemas.states import Shown
from streams.state_records import StateRecords
from tests.doubles.status_events import calls
from tests.doubles.status_road import IDS, PAGE, TENANT

TOPIC = "notification.state"
texts = st.text(st.characters(codec="utf-8"), max_size=80)
numbers = st.integers(0, 2**48)
names = st.sampled_from(("", "email", "push/00c0ffee", "inapp"))
plans = st.builds(Plan, numbers, st.just(False), st.just(("email",)), texts, texts, numbers)
shows = st.builds(Shown, texts, texts, texts, numbers, numbers, st.integers(0, 255), st.integers(0, 16), texts, texts)
told = st.none() | calls(st.just("email"))


@given(st.lists(st.tuples(st.integers(0, 1), plans, texts, names, shows, told, numbers), min_size=1, max_size=6))
def test_a_public_record_is_what_the_codec_makes_of_the_message(
    changes: list[tuple[int, Plan, str, str, Shown, StatusEvent | None, int]],
) -> None:
    records = StateRecords(TOPIC, IDS, TENANT, PAGE, "spring")
    for version, (slot, plan, template, name, shown, event, at_ms) in enumerate(changes):
        record = records.record(slot, plan, template, 7, name, shown, event, at_ms, version << 8)
        expected = message(slot, plan, template, name, shown, event, at_ms, version << 8)
        assert record.key == expected.delivery_id.encode()
        assert record.value == codec.encode(expected)


def message(
    slot: int, plan: Plan, template: str, name: str, shown: Shown, event: StatusEvent | None, at_ms: int, version: int
) -> DeliveryState:
    notification = IDS.notification_id(TENANT, keys.Address(PAGE, slot))
    channel, _, device = name.partition("/")
    texts = event or shown
    return DeliveryState(
        delivery_id=keys.delivery_id(notification, name) if name else notification,
        notification_id=notification,
        tenant=TENANT,
        campaign_id="spring",
        user_id=plan.user_id,
        template=plan.template or template,
        channel=channel,
        device=device or None,
        state=shown.state,
        reason=shown.reason or None,
        detail=texts.detail or None,
        provider=texts.provider or None,
        provider_id=texts.provider_id or None,
        calls=shown.calls,
        possible_duplicates=shown.possible_duplicates,
        accepted_at=plan.accepted_at_ms or 7,
        sent_at=shown.sent_at_ms or None,
        waits_until=shown.until_ms or None,
        at=at_ms,
        version=version,
    )
