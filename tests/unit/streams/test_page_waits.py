"""Who of a page waits for their time or sleeps, in which parts, and that nobody goes too early or too late."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from retry_topics import hold
from schemas import local_times, quiet_hours
from schemas.messages import EventKind, Held, ReleasedPage
from schemas.policies import QuietWindow
from schemas.quiet_hours import Nights
from schemas.reasons import Reason
from streams import page_waits
from tests.doubles.manual_clock import START_MS
from tests.doubles.pages import page

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WORLD = (
    *("Pacific/Kiritimati", "Australia/Lord_Howe", "Asia/Tokyo", "Asia/Kolkata", "Asia/Kathmandu", "Africa/Cairo"),
    *("Europe/Berlin", "Europe/London", "America/St_Johns", "America/New_York", "America/Los_Angeles", "Pacific/Niue"),
)
ACCEPTED_MS = START_MS - 5_000
AWAKE = Nights(None, "Europe/Berlin")
NIGHT = Nights(QuietWindow("22:00", "09:30"), "Europe/Berlin")
SIESTA = Nights(QuietWindow("06:00", "07:00"), "Europe/Berlin")
zones = st.lists(st.sampled_from(WORLD), min_size=1, max_size=40)
page_numbers = st.sampled_from((0, 1, 40, 39_999))


def morning(people: Sequence[str], number: int = 0) -> ReleasedPage:
    """A page of a campaign that is wanted at the next 08:00 of each one's own zone."""
    users = [f"user-{position}" for position in range(len(people))]
    expires_at_ms = ACCEPTED_MS + 3 * DAY_MS
    return page(*users, page=number, send_at_local="08:00", accepted_at_ms=ACCEPTED_MS, expires_at_ms=expires_at_ms)


def now(people: Sequence[str], number: int = 0) -> ReleasedPage:
    """A page of a campaign that is wanted now."""
    return replace(morning(people, number), send_at_local="")


def later(
    released: ReleasedPage, people: Sequence[str], now_ms: int = START_MS, nights: Nights = AWAKE
) -> page_waits.Later:
    slots = released.slots or range(len(people))
    return page_waits.later(released, [(slot, people[slot]) for slot in slots], nights, now_ms)


def waits(
    released: ReleasedPage, people: Sequence[str], now_ms: int = START_MS, nights: Nights = AWAKE
) -> Sequence[page_waits.Wait]:
    return later(released, people, now_ms, nights).waits


def due_ms(zone: str) -> int:
    return local_times.due_ms("", "08:00", zone, ACCEPTED_MS)


def slots_of(held: Held, people: Sequence[str]) -> Sequence[int]:
    assert held.page is not None
    return held.page.slots or range(len(people))


def fired(held: Held, released: ReleasedPage) -> ReleasedPage:
    """What dispatch lets go when the part is due."""
    assert held.page is not None
    return replace(released, slots=held.page.slots, hop=held.hop, released_at_ms=held.due_ms)


class Story(NamedTuple):
    """went: slot -> when it was let go; most: the parts that lay in hold at once; parts: how many there ever were."""

    went: dict[int, int]
    most: int
    parts: int


def story(released: ReleasedPage, people: Sequence[str], nights: Nights = AWAKE) -> Story:
    """A page from its release until nobody of it waits any more."""
    went: dict[int, int] = {}
    lying, most, parts_ever = [released], 0, 0
    while lying:
        one = lying.pop(0)
        waiting = waits(one, people, one.released_at_ms, nights)
        left = {wait.slot for wait in waiting}
        going = [slot for slot in one.slots or range(len(people)) if slot not in left]
        assert one.hop == 0 or going, "each part lets somebody go"
        assert not went.keys() & going, "nobody twice"
        went |= dict.fromkeys(going, one.released_at_ms)
        parts = page_waits.parts(one, waiting, one.released_at_ms)
        assert sorted(slot for part in parts for slot in slots_of(part, people)) == sorted(left)
        lying = sorted([*lying, *(fired(part, released) for part in parts)], key=lambda one: one.released_at_ms)
        most, parts_ever = max(most, len(lying)), parts_ever + len(parts)
    return Story(went, most, parts_ever)


@given(zones, page_numbers)
@settings(deadline=None)
def test_everybody_goes_once_not_before_their_own_morning_and_within_half_an_hour_of_it(
    people: list[str], number: int
) -> None:
    went = story(morning(people, number), people).went
    assert sorted(went) == list(range(len(people)))
    for slot, at_ms in went.items():
        due = max(due_ms(people[slot]), START_MS)
        assert due <= at_ms < due + hold.SPREAD_MS


def test_fifteen_thousand_people_in_24_zones_are_all_begun_within_half_an_hour_of_their_own_morning() -> None:
    """N28: there, messages of eight o'clock came up to 15 hours late."""
    hours = [f"Etc/GMT{offset:+d}" for offset in range(-12, 12)]
    late_ms: dict[str, list[int]] = {zone: [] for zone in hours}
    for number in range(60):
        people = [hours[(number + position) % 24] for position in range(250)]
        for slot, at_ms in story(morning(people, number), people).went.items():
            late_ms[people[slot]].append(at_ms - max(due_ms(people[slot]), START_MS))
    assert sum(map(len, late_ms.values())) == 15_000
    for zone, late in late_ms.items():
        assert min(late) >= 0 and max(late) < 60 * 250 * 10 < hold.SPREAD_MS, zone


@given(zones, page_numbers)
@settings(deadline=None)
def test_a_page_waits_in_few_parts_and_comes_up_no_oftener_than_it_has_mornings(people: list[str], number: int) -> None:
    told = story(morning(people, number), people)
    assert told.most <= page_waits.MOST_PARTS
    assert told.parts <= len({due_ms(zone) for zone in people})


@given(zones, page_numbers)
@settings(deadline=None)
def test_a_page_expanded_twice_waits_in_the_same_parts(people: list[str], number: int) -> None:
    released = morning(people, number)
    once, again = (page_waits.parts(released, waits(released, people), START_MS) for _ in range(2))
    assert once == again


def test_where_all_live_in_one_zone_ten_million_wait_in_one_record_a_page() -> None:
    people = ["Asia/Tokyo"] * 250
    released = morning(people)
    (held,) = page_waits.parts(released, waits(released, people), START_MS)
    assert held.page is not None and held.page.slots == (), "all of the page, without naming them"


def test_a_small_campaign_starts_at_its_moment_and_a_large_one_over_half_an_hour() -> None:
    delays = Counter[int]()
    for number in range(4_000):
        (wait,) = waits(morning(["Asia/Tokyo"], number), ["Asia/Tokyo"])
        delay_ms = wait.until_ms - due_ms("Asia/Tokyo")
        assert 0 <= delay_ms <= number * 250 * 10, "page n of a campaign: as 100 recipients a second would reach it"
        delays[delay_ms // 300_000] += 1
    assert set(delays) == set(range(6)), "each of the six times five minutes"
    assert max(delays.values()) < 2 * min(delays.values())


def test_an_unknown_zone_waits_for_the_tenants_morning_and_the_row_says_so() -> None:
    people = ["Mars/Olympus", "", "Europe/Berlin"]
    released = morning(people)
    told = page_waits.told(released, later(released, people), START_MS)
    assert [event.reason for event in told] == [Reason.UNKNOWN_ZONE, Reason.SCHEDULED, Reason.SCHEDULED]
    assert {(event.kind, event.hop, event.until_ms) for event in told} == {
        (EventKind.SCHEDULED, 1, due_ms("Europe/Berlin"))
    }


def test_whose_morning_comes_after_the_expiry_ends_as_expired_at_once() -> None:
    people = ["Asia/Tokyo", "Europe/Berlin"]
    released = replace(morning(people), expires_at_ms=due_ms("Europe/Berlin") + 1)
    found = later(released, people)
    assert due_ms("Europe/Berlin") < due_ms("Asia/Tokyo")
    assert ([wait.slot for wait in found.waits], found.slots()) == ([1], {0, 1})
    ended = page_waits.told(released, found, START_MS)[-1]
    assert (ended.slot, ended.kind, ended.detail) == (0, EventKind.EXPIRED, page_waits.TOO_LATE)


def test_nobody_is_spread_past_the_expiry() -> None:
    released = replace(morning(["Asia/Tokyo"], number=39_999), expires_at_ms=due_ms("Asia/Tokyo") + 1)
    (wait,) = waits(released, ["Asia/Tokyo"])
    assert wait.until_ms == due_ms("Asia/Tokyo")


def test_nobody_is_let_go_just_before_they_expire() -> None:
    people = ["Asia/Tokyo"]
    for nights, begins_ms in ((AWAKE, due_ms("Asia/Tokyo")), (NIGHT, due_ms("Asia/Tokyo") + 90 * 60_000)):
        late = []
        for number in range(39_900, 40_000):
            released = replace(morning(people, number=number), expires_at_ms=begins_ms + 120_000)
            late.append(waits(released, people, nights=nights)[0].until_ms - begins_ms)
        assert 0 <= min(late) < max(late) < 60_000


def test_a_part_let_go_by_a_clock_that_is_ahead_does_not_come_back() -> None:
    people = ["Asia/Tokyo"]
    due = due_ms("Asia/Tokyo")
    assert not waits(replace(morning(people), released_at_ms=due), people, due - 1)


def test_who_moved_west_meanwhile_waits_on() -> None:
    released = replace(morning(["Europe/Berlin"] * 2), hop=1, released_at_ms=due_ms("Europe/Berlin"))
    moved = ["Europe/Berlin", "America/New_York"]
    (held,) = page_waits.parts(released, waits(released, moved, released.released_at_ms), released.released_at_ms)
    assert (held.hop, held.due_ms) == (2, due_ms("America/New_York"))
    assert held.page is not None and held.page.slots == (1,)


def test_a_campaign_of_now_waits_for_nobody_who_is_awake() -> None:
    assert later(page("ann", accepted_at_ms=ACCEPTED_MS), ["Asia/Tokyo"]) == page_waits.Later()
    assert later(now(["Asia/Tokyo"]), ["Asia/Tokyo"], nights=Nights(QuietWindow("22:00", "08:00"), "UTC")) == ([], [])


@given(zones, page_numbers, st.booleans(), st.sampled_from((NIGHT, SIESTA, AWAKE)))
@settings(deadline=None)
def test_nobody_goes_in_their_quiet_hours_and_each_within_half_an_hour_of_the_first_moment_outside_of_them(
    people: list[str], number: int, is_morning: bool, nights: Nights
) -> None:
    """Also where the wish of a local start lies inside of them (NIGHT), or is over by then (SIESTA)."""
    released = morning(people, number) if is_morning else now(people, number)
    told = story(released, people, nights)
    assert sorted(told.went) == list(range(len(people)))
    assert told.most <= page_waits.MOST_PARTS
    for slot, at_ms in told.went.items():
        due = max(due_ms(people[slot]), START_MS) if is_morning else START_MS
        first = nights.until_ms(people[slot], due) or due
        assert nights.until_ms(people[slot], at_ms) == 0
        assert first <= at_ms < first + hold.SPREAD_MS
        assert at_ms == START_MS or first > START_MS, "who may go now goes now"


def test_a_campaign_of_now_reaches_a_world_of_24_hours_within_half_an_hour_of_each_ones_morning() -> None:
    """Fifteen thousand people, a day and a night: who is awake at once, nobody asleep, the last a night later."""
    hours = [f"Etc/GMT{offset:+d}" for offset in range(-12, 12)]
    nights = Nights(QuietWindow("22:00", "08:00"), "UTC")
    late_ms: dict[str, list[int]] = {zone: [] for zone in hours}
    for number in range(60):
        people = [hours[(number + position) % 24] for position in range(250)]
        for slot, at_ms in story(now(people, number), people, nights).went.items():
            assert nights.until_ms(people[slot], at_ms) == 0
            late_ms[people[slot]].append(at_ms - (nights.until_ms(people[slot], START_MS) or START_MS))
    assert sum(map(len, late_ms.values())) == 15_000
    asleep = [zone for zone in hours if nights.until_ms(zone, START_MS)]
    assert len(asleep) == 10, "as many hours as the night has"
    for zone, late in late_ms.items():
        assert min(late) >= 0 and max(late) < (60 * 250 * 10 if zone in asleep else 1)


def test_who_sleeps_is_held_until_the_morning_and_the_row_says_so() -> None:
    """Ten in the morning in Tokyo, two at night in Berlin, eight in the evening in New York."""
    people = ["Asia/Tokyo", "Europe/Berlin", "America/New_York", "Mars/Olympus"]
    released, morning_ms = now(people), START_MS + 7 * HOUR_MS + 36 * 60_000 + 40_000
    found = later(released, people, nights=NIGHT)
    assert found.slots() == {1, 3}
    assert {(e.slot, e.kind, e.reason, e.hop, e.until_ms) for e in page_waits.told(released, found, START_MS)} == {
        (slot, EventKind.HELD, Reason.QUIET_HOURS, 1, morning_ms) for slot in (1, 3)
    }
    (held,) = page_waits.parts(released, found.waits, START_MS)
    assert (held.due_ms, held.reason, slots_of(held, people)) == (morning_ms, Reason.QUIET_HOURS, (1, 3))


def test_a_local_start_in_the_night_waits_for_its_end_and_says_which_of_the_two_it_waits_for() -> None:
    people = ["Europe/Berlin"]
    (wait,) = waits(morning(people), people, nights=NIGHT)
    assert (wait.until_ms, wait.reason) == (due_ms("Europe/Berlin") + 90 * 60_000, Reason.QUIET_HOURS)
    (wait,) = waits(morning(people), people, nights=SIESTA)
    assert (wait.until_ms, wait.reason) == (due_ms("Europe/Berlin"), Reason.SCHEDULED)


def test_nobody_is_spread_into_a_night_that_begins_soon_after_their_start() -> None:
    nights = Nights(QuietWindow("08:01", "20:00"), "UTC")
    delayed = [waits(morning(["Asia/Tokyo"], n), ["Asia/Tokyo"], nights=nights)[0].until_ms for n in range(500)]
    assert {nights.until_ms("Asia/Tokyo", until_ms) for until_ms in delayed} == {0}
    assert min(delayed) == due_ms("Asia/Tokyo") and max(delayed) < due_ms("Asia/Tokyo") + 60_000


def test_whose_night_is_longer_than_the_message_is_worth_ends_as_expired_at_once() -> None:
    people = ["Europe/Berlin", "Asia/Tokyo"]
    released = replace(now(people), expires_at_ms=START_MS + 7 * HOUR_MS)
    found = later(released, people, nights=NIGHT)
    assert (found.waits, found.slots()) == ([], {0})
    (ended,) = page_waits.told(released, found, START_MS)
    assert (ended.slot, ended.kind, ended.detail) == (0, EventKind.EXPIRED, quiet_hours.TOO_LONG)


def test_who_is_let_go_at_the_end_of_the_night_by_a_clock_that_is_ahead_does_not_wait_for_the_next_spread() -> None:
    people = ["Europe/Berlin"]
    (wait,) = waits(now(people), people, nights=NIGHT)
    part = replace(now(people), hop=1, released_at_ms=wait.until_ms)
    assert not waits(part, people, wait.until_ms - 1, NIGHT)
