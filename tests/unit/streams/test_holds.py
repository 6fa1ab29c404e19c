"""Goal: of what is held nothing is forgotten, nothing comes early, and nothing that was let go comes again."""

import tracemalloc
from dataclasses import replace

from retry_topics import hold
from schemas import codec, keys
from schemas.messages import Channel, Held, HeldPage, Priority
from schemas.records import Outgoing, Record
from schemas.topics import Topics
from streams.holds import NEVER_MS, Flow, Holds, Part, parts_of, slots
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS

TOPICS = Topics()
SPRING = "acme/spring"
SINGLES = Flow("acme", "", TOPICS.lane(Channel.SMS, Priority.BULK))
PART = Held("acme", START_MS, "quiet_hours", 1, START_MS - 1, page=HeldPage("spring", 7, 4711, (3, 9)))
ONE = Held(
    "acme", START_MS, "scheduled", 1, START_MS - 1, delivery=single(tenant="acme", priority=Priority.BULK, hop=1)
)


class Log:
    """Hands records over as a view of the topic does."""

    def __init__(self) -> None:
        self.holds = Holds(TOPICS)
        self._offset = 0

    def put(self, *held: Held) -> None:
        for one in held:
            self._see(hold.record(TOPICS, one))

    def bury(self, *held: Held) -> None:
        for one in held:
            key = hold.record(TOPICS, one).key
            assert key is not None
            self._see(hold.tombstone(TOPICS, key))

    def pages(self, now_ms: int, most: int = 100) -> list[int]:
        return [part.page for part in self.holds.take_parts(SPRING, now_ms, most)]

    def _see(self, outgoing: Outgoing) -> None:
        self._offset += 1
        self.holds.on_record(Record(TOPICS.hold, 0, self._offset, outgoing.key, outgoing.value, (), START_MS))


def part(page: int, due_ms: int = START_MS, reason: str = "quiet_hours", held_slots: tuple[int, ...] = (3,)) -> Held:
    return replace(PART, due_ms=due_ms, reason=reason, page=HeldPage("spring", page, 4700 + page, held_slots))


def test_parts_come_up_when_they_are_due_the_oldest_first() -> None:
    log = Log()
    log.put(part(2, START_MS + 20), part(1, START_MS + 10), part(3, START_MS + 30))
    assert log.pages(START_MS + 9) == []
    assert log.pages(START_MS + 20) == [1, 2]
    assert log.pages(START_MS + 30) == [3], "what was taken is not taken twice"


def test_what_was_taken_and_not_let_go_comes_up_again() -> None:
    log = Log()
    log.put(part(1), part(2))
    first, second = log.holds.take_parts(SPRING, START_MS, 2)
    log.holds.gone([first])
    log.holds.start_over()
    assert log.holds.take_parts(SPRING, START_MS, 2) == [second]


def test_a_tombstone_takes_what_it_names_and_nothing_else() -> None:
    log = Log()
    log.put(PART, replace(PART, hop=2), ONE)
    log.bury(PART)
    assert [one.hop for one in log.holds.take_parts(SPRING, START_MS, 9)] == [2]
    assert len(log.holds) == 2
    log.bury(ONE)
    assert log.holds.take(SINGLES, START_MS, 9) == []


def test_what_is_put_in_twice_comes_out_once_as_it_was_put_in_last() -> None:
    log = Log()
    log.put(part(1, START_MS), part(1, START_MS + 10))
    assert log.pages(START_MS) == []
    (found,) = log.holds.take_parts(SPRING, START_MS + 10, 9)
    assert slots(found.mask) == (3,)
    assert log.holds.recipients(SPRING) == 1


def test_put_in_anew_while_it_is_let_go_it_stays_until_the_log_says_otherwise() -> None:
    log = Log()
    log.put(PART)
    taken = log.holds.take_parts(SPRING, START_MS, 1)
    log.put(PART)
    log.holds.gone(taken)
    assert len(log.holds) == 1
    log.bury(PART)
    assert len(log.holds) == 0


def test_of_a_part_that_went_in_a_piece_only_the_rest_waits() -> None:
    log = Log()
    log.put(PART)
    (taken,) = log.holds.take_parts(SPRING, START_MS, 1)
    log.holds.shrink(taken, 1 << 9)
    log.holds.start_over()
    (rest,) = log.holds.take_parts(SPRING, START_MS, 1)
    assert (slots(rest.mask), log.holds.recipients(SPRING)) == ((9,), 1)


def test_what_a_pause_put_away_waits_for_the_resume_and_has_no_date() -> None:
    log = Log()
    log.put(part(1, 0, "campaign_paused"), part(2, 0, "lookalike"))
    assert log.pages(START_MS) == [1]
    assert log.pages(NEVER_MS) == [2], "it ends with its campaign"


def test_a_delivery_comes_up_at_its_expiry_at_the_latest() -> None:
    log = Log()
    delivery = single(tenant="acme", priority=Priority.BULK, expires_at_ms=START_MS + 50)
    log.put(replace(ONE, due_ms=START_MS + 100, delivery=delivery))
    log.put(replace(ONE, due_ms=0, reason="lookalike", hop=2, delivery=delivery))
    assert log.holds.take(SINGLES, START_MS + 49, 9) == []
    assert [one.offset for one in log.holds.take(SINGLES, START_MS + 50, 9)] == [1, 2]


def test_a_campaigns_deliveries_and_those_of_each_lane_wait_apart() -> None:
    log = Log()
    mine = single(tenant="acme", priority=Priority.BULK, campaign_id="spring")
    log.put(ONE, replace(ONE, hop=2, delivery=mine))
    log.put(replace(ONE, hop=3, delivery=single(tenant="acme", channel=Channel.EMAIL, priority=Priority.BULK)))
    lanes = {(flow.campaign, flow.lane) for flow in log.holds.flows()}
    assert lanes == {("", "sms.bulk"), (SPRING, "sms.bulk"), ("", "email.bulk")}


def test_what_cannot_be_read_is_left_out() -> None:
    log = Log()
    for value in (b"garbage", codec.encode(replace(PART, page=None)), codec.encode(part(1, held_slots=(250,)))):
        log.holds.on_record(Record(TOPICS.hold, 0, 1, b"acme/x", value, (), START_MS))
    assert len(log.holds) == 0


def test_a_reader_of_the_whole_topic_that_meets_everything_again_holds_it_once() -> None:
    log = Log()
    for _ in range(2):
        log.put(*[part(page) for page in range(50)])
        log.bury(*[part(page) for page in range(25)])
    assert sorted(log.pages(START_MS)) == list(range(25, 50))
    assert log.holds.recipients(SPRING) == 25


def test_what_comes_and_goes_for_long_leaves_nothing_behind() -> None:
    log = Log()
    log.put(part(0, START_MS + 1))
    for page in range(1, 20_000):
        log.put(part(page % 9 + 1, START_MS + page))
    held = log.holds._queues[parts_of(SPRING)].heap
    assert len(held) < 3_000


def test_ten_million_held_recipients_and_100_000_singles_take_less_than_100_mb() -> None:
    """Goal: dispatch stays below 300 MB. A twentieth of each is put in, as they take the same space each."""
    log = Log()
    address = keys.single_address("0a1b2c3d", 3, 1_000_000)
    delivery = single(tenant="acme", priority=Priority.BULK, row=address.row, slot=address.slot)
    parts = [part(page, START_MS + page, held_slots=tuple(range(page % 3, 250))) for page in range(2_000)]
    singles = [
        replace(ONE, due_ms=START_MS + number, delivery=replace(delivery, user_id=f"customer-{100_000 + number}"))
        for number in range(5_000)
    ]
    tracemalloc.start()
    try:
        log.put(*parts, *singles)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(log.holds) == 7_000
    assert 20 * used < 100_000_000


def test_a_part_of_all_slots_is_the_whole_page() -> None:
    log = Log()
    log.put(part(1, held_slots=()))
    (found,) = log.holds.take_parts(SPRING, START_MS, 1)
    assert isinstance(found, Part)
    assert (found.recipients, found.hop, found.source_offset) == (250, 1, 4701)
