"""Records of a page, put together from pieces, are byte for byte what the codec would write."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec, keys
from schemas.messages import Channel, Contact, Delivery, Device, EventKind, Recipient, StatusBatch
from schemas.topics import Topics
from streams import lane_records, page_status, stencil
from streams.planning import Part, Plan
from tests.doubles.pages import page

TOPICS = Topics()
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
parts = st.builds(
    Part, st.sampled_from(Channel), device=words, reason=st.sampled_from(["", "no_address"]), next=st.just("")
)
plans = st.builds(
    Plan, st.lists(parts, max_size=4).map(tuple), st.lists(st.sampled_from(Channel), max_size=2).map(tuple)
)
devices = st.lists(st.builds(Device, words, words, words), max_size=2).map(tuple)
contacts = st.builds(Contact, email=words | st.just(stencil.MARK + "t"), devices=devices)
recipients = st.builds(Recipient, words, st.one_of(words, st.just(stencil.MARK + "p")), st.none() | contacts)


@settings(deadline=None)
@given(st.integers(0, 249), recipients, words, st.lists(plans, min_size=1, max_size=3), words)
def test_each_delivery_reads_back_as_it_was_planned(
    slot: int, recipient: Recipient, intent: str, tried: list[Plan], params: str
) -> None:
    released = page(recipient, params=params)
    lanes = lane_records.LaneRecords(released, "c.spring.3", TOPICS)
    for plan in tried:
        lanes.add(slot, recipient, intent, plan)
    expected = [
        Delivery(
            "default", recipient.user_id, intent, "c.spring.3", slot, index, part.channel, part.device,
            released.priority, "offer", "spring", recipient.params, params, recipient.to, released.accepted_at_ms,
            released.released_at_ms, released.expires_at_ms, siblings=plan.siblings(index), fallback=plan.fallback,
        )
        for plan in tried
        for index, part in enumerate(plan.parts)
        if not part.reason
    ]  # fmt: skip
    records = lanes.finished()
    assert [record.value for record in records] == [codec.encode(delivery) for delivery in expected]
    assert [record.topic for record in records] == [TOPICS.lane(d.channel, d.priority) for d in expected]
    assert {record.key for record in records} <= {keys.user_key("default", recipient.user_id).encode()}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 249), st.lists(words, max_size=3).map(tuple), words)), words)
def test_the_row_reads_back_every_plan(slots: list[tuple[int, tuple[str, ...], str]], template: str) -> None:
    plans = page_status.Plans(page(template=template), "c.spring.3", 99)
    for slot in slots:
        plans.add(*slot)
    events = [event for record in plans.finished("s") for event in codec.decode(record.value, StatusBatch).events]
    assert [(event.slot, event.plan, event.user_id) for event in events] == slots
    assert all(event.kind is EventKind.PLANNED and event.template == template for event in events)
    assert all(event.source_offset == 41 and event.at_ms == 99 for event in events)


def test_a_record_holds_at_most_200_plans() -> None:
    plans = page_status.Plans(page(), "c.spring.3", 99)
    for slot in range(250):
        plans.add(slot, ("email",), str(slot))
    sizes = [len(codec.decode(record.value, StatusBatch).events) for record in plans.finished("s")]
    assert sizes == [200, 50]


def test_a_text_that_looks_like_a_mark_is_still_encoded_right() -> None:
    recipient = Recipient("ann", "{}")
    lanes = lane_records.LaneRecords(page(recipient, params=stencil.MARK + "p"), "c.spring.3", TOPICS)
    lanes.add(0, recipient, "i", Plan((Part(Channel.EMAIL),)))
    (record,) = lanes.finished()
    delivery = codec.decode(record.value, Delivery)
    assert (delivery.params, delivery.campaign_params) == ("{}", stencil.MARK + "p")
