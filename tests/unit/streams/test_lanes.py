"""How full a lane may be, which lanes a campaign may use, and a pace kept by counting."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.messages import Channel, Priority
from schemas.policies import MessageClass, TemplatePolicy
from schemas.topics import Topics
from streams import lanes
from streams.pace import Allowance
from tests.doubles import campaigns

TOPICS = Topics()


def test_bulk_may_fill_five_seconds_of_seven_tenths_of_the_providers_rate() -> None:
    lane = lanes.bulk_lane("push.bulk", 1_000, lying=3_000, coming=0)
    assert lane.has_room(500, 0.0)
    assert not lane.has_room(501, 0.0)


def test_pages_on_their_way_count_but_for_no_more_than_the_lane_should_hold() -> None:
    assert lanes.bulk_lane("push.bulk", 1_000, lying=100, coming=400).backlog == 500
    assert lanes.bulk_lane("push.bulk", 1_000, lying=100, coming=1_000_000).backlog == 3_600


def test_a_page_larger_than_the_window_of_a_slow_lane_goes_in_when_little_is_left() -> None:
    assert lanes.bulk_lane("sms.bulk", 10, lying=13, coming=0).has_room(250, 0.0)
    assert not lanes.bulk_lane("sms.bulk", 10, lying=14, coming=0).has_room(250, 0.0)


def test_a_deployment_may_keep_its_lanes_fuller_and_give_bulk_another_share() -> None:
    window = lanes.Window(share=0.5, least_s=4, most_s=10)
    lane = lanes.bulk_lane("push.bulk", 1_000, lying=4_000, coming=0, window=window)
    assert lane.has_room(1_000, 0.0)
    assert not lane.has_room(1_001, 0.0)
    lane = lanes.transactional_lane("push.transactional", 1_000, 0, 0, Allowance(0.0), window)
    assert lane.rate_per_s == 250


def test_without_a_provider_there_is_no_room_at_all() -> None:
    assert not lanes.bulk_lane("push.bulk", 0, lying=0, coming=0).has_room(0, 0.0)


def test_a_campaign_alone_in_a_lane_goes_in_whole_pages_and_one_of_several_in_small_pieces() -> None:
    window = lanes.Window()
    assert window.piece([1_400.0], 1.0) == 250
    assert window.piece([420.0], 1.0) == 105
    assert window.piece([420.0, 5_000.0], 1 / 6) == 17, "a fortieth of what ten seconds bring it"


def test_of_a_thousand_campaigns_each_has_a_piece_worth_the_work() -> None:
    assert lanes.Window().piece([1_400.0], 0.001) == 28
    assert lanes.Window().piece([2.0], 0.001) == 1


def test_a_campaign_with_a_pace_of_its_own_goes_in_pieces_of_a_quarter_of_a_second_of_it() -> None:
    assert lanes.Window().piece([1_400.0], 1.0, 40.0) == 10


RATES = dict.fromkeys(Channel, 100.0)
ALL = frozenset(Channel)


def test_a_lane_with_a_page_more_than_it_should_hold_is_not_overfull_yet() -> None:
    assert not lanes.bulk_lane("sms.bulk", 10, lying=264, coming=0).is_overfull
    assert lanes.bulk_lane("sms.bulk", 10, lying=265, coming=0).is_overfull
    assert not lanes.bulk_lane("push.bulk", 1_000, lying=3_500, coming=0).is_overfull
    assert lanes.bulk_lane("push.bulk", 1_000, lying=3_501, coming=0).is_overfull


def test_a_campaign_uses_every_channel_it_sends_on_and_those_it_may_fall_back_to() -> None:
    policy = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,), (Channel.SMS,))
    use = lanes.use(campaigns.request(), policy, TOPICS, ALL)
    assert set(use.lanes) == {"push.bulk", "sms.bulk"}
    assert use.filled(RATES) == ("push.bulk",)
    assert use.priority is Priority.BULK


def test_of_a_fallback_list_the_first_channel_with_a_usable_provider_is_filled() -> None:
    policy = TemplatePolicy("code", MessageClass.TRANSACTIONAL, (), (Channel.PUSH, Channel.SMS))
    use = lanes.use(campaigns.request(), policy, TOPICS, ALL)
    assert use.filled(RATES) == ("push.transactional",)
    assert use.filled(RATES | {Channel.PUSH: 0.0}) == ("sms.transactional",)
    assert use.filled(dict.fromkeys(Channel, 0.0)) == ()


def test_channels_of_the_request_are_all_that_is_used() -> None:
    policy = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH, Channel.EMAIL), (Channel.SMS,))
    use = lanes.use(campaigns.request(channels=(Channel.EMAIL,)), policy, TOPICS, ALL)
    assert set(use.lanes) == {"email.bulk"}


def test_a_channel_without_any_provider_is_not_used() -> None:
    policy = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH, Channel.EMAIL), (Channel.SMS,))
    use = lanes.use(campaigns.request(), policy, TOPICS, {Channel.EMAIL})
    assert use.lanes == {"email.bulk": Channel.EMAIL}


@settings(deadline=None)
@given(st.integers(1, 1_000), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 250)), max_size=40))
def test_an_allowance_never_gives_more_than_rate_times_time_and_one_second_and_one_piece(
    rate: int, asked: list[tuple[float, int]]
) -> None:
    allowance, now_s, given_away = Allowance(0.0), 0.0, 0
    for wait_s, piece in asked:
        now_s += wait_s
        if allowance.left(rate, now_s) > 0:
            allowance.spend(piece)
            given_away += piece
    assert given_away <= rate * now_s + 250 + 1e-6


def test_an_allowance_keeps_no_more_than_a_second_for_later() -> None:
    allowance = Allowance(0.0)
    assert allowance.left(100, 3_600.0) == 100
