"""Who may be reached how: every non-send has a named reason, and the first plan stays."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import keys
from schemas.messages import Channel, Contact, Device, EventKind
from schemas.policies import MessageClass, TemplatePolicy
from schemas.reasons import Reason
from schemas.stores import Profile
from streams import planning
from streams.planning import Part, Plan

PUSH, EMAIL, SMS, INAPP = Channel.PUSH, Channel.EMAIL, Channel.SMS, Channel.INAPP


def policy(*channels: Channel, fallback: tuple[Channel, ...] = ()) -> TemplatePolicy:
    return TemplatePolicy("offer", MessageClass.MARKETING, channels, fallback)


def device(name: str, registered_at_ms: int = 0) -> Device:
    return Device(name, f"token-{name}", "ios", registered_at_ms=registered_at_ms)


def test_all_channels_of_the_template_are_sent() -> None:
    ann = Profile(1, email="ann@example.org", phone="+4917012345", devices=(device("phone"),))
    plan = planning.plan(policy(PUSH, EMAIL, SMS, INAPP), (), ann, None)
    assert plan == Plan((Part(PUSH, "phone"), Part(EMAIL), Part(SMS), Part(INAPP)))


def test_push_reaches_the_five_newest_devices_newest_first() -> None:
    ann = Profile(1, devices=tuple(device(str(n), n) for n in range(7)))
    plan = planning.plan(policy(PUSH), (), ann, None)
    assert [part.device for part in plan.parts] == ["6", "5", "4", "3", "2"]


def test_opted_out_of_email_and_push_nothing_goes_out_and_both_say_why() -> None:
    out = frozenset({("email", "*"), ("push", "marketing")})
    ann = Profile(1, email="ann@example.org", devices=(device("a"), device("b")), opt_outs=out)
    plan = planning.plan(policy(PUSH, EMAIL), (), ann, None)
    assert plan.parts == (Part(PUSH, reason=Reason.OPTED_OUT), Part(EMAIL, reason=Reason.OPTED_OUT))


def test_a_channel_without_an_address_says_so() -> None:
    plan = planning.plan(policy(EMAIL, INAPP), (), Profile(), None)
    assert plan.parts == (Part(EMAIL, reason=Reason.NO_ADDRESS), Part(INAPP))


def test_an_erased_person_is_not_reached_even_by_addresses_in_the_request() -> None:
    plan = planning.plan(policy(EMAIL), (), Profile(3, erased=True), Contact(email="ann@example.org"))
    assert plan.parts == (Part(EMAIL, reason=Reason.ERASED),)


def test_addresses_in_the_request_serve_people_without_a_profile() -> None:
    to = Contact(email="bob@example.org", devices=(device("tv"),))
    assert planning.plan(policy(PUSH, EMAIL), (), Profile(), to).parts == (Part(PUSH, "tv"), Part(EMAIL))


def test_a_fallback_list_takes_the_first_channel_that_reaches_and_keeps_the_rest_for_later() -> None:
    ann = Profile(1, email="ann@example.org", phone="+4917012345")
    plan = planning.plan(policy(fallback=(PUSH, EMAIL, SMS)), (), ann, None)
    assert plan == Plan((Part(PUSH, reason=Reason.NO_ADDRESS, next="email"), Part(EMAIL)), (SMS,))


def test_fallback_starts_at_once_when_no_channel_has_an_address() -> None:
    plan = planning.plan(policy(PUSH, fallback=(SMS,)), (), Profile(1, phone="+4917012345"), None)
    assert plan == Plan((Part(PUSH, reason=Reason.NO_ADDRESS, next="sms"), Part(SMS)))


def test_fallback_waits_while_one_channel_can_be_tried() -> None:
    ann = Profile(1, phone="+4917012345", devices=(device("phone"),))
    plan = planning.plan(policy(PUSH, EMAIL, fallback=(SMS,)), (), ann, None)
    assert plan == Plan((Part(PUSH, "phone"), Part(EMAIL, reason=Reason.NO_ADDRESS)), (SMS,))


def test_an_opt_out_is_a_wish_and_starts_no_fallback() -> None:
    ann = Profile(1, phone="+4917012345", devices=(device("a"),), opt_outs=frozenset({("push", "*")}))
    plan = planning.plan(policy(PUSH, fallback=(SMS,)), (), ann, None)
    assert plan.parts == (Part(PUSH, reason=Reason.OPTED_OUT),)


def test_channels_of_the_request_replace_those_of_the_template_fallback_included() -> None:
    ann = Profile(1, email="ann@example.org", phone="+4917012345")
    assert planning.plan(policy(EMAIL, fallback=(SMS,)), (EMAIL,), ann, None) == Plan((Part(EMAIL),))


PUSH_ONLY = frozenset({PUSH, INAPP})


def test_a_channel_without_a_provider_is_passed_over_in_a_fallback_list_and_never_fallen_back_to() -> None:
    ann = Profile(1, email="ann@example.org", phone="+4917012345", devices=(device("phone"),))
    plan = planning.plan(policy(fallback=(EMAIL, PUSH, SMS, INAPP)), (), ann, None, PUSH_ONLY)
    assert plan == Plan(
        (Part(EMAIL, reason=Reason.NO_PROVIDER, next=keys.delivery_suffix(PUSH, "phone")), Part(PUSH, "phone")),
        (INAPP,),
    )


def test_of_all_channels_those_without_a_provider_say_so_and_the_others_go_out() -> None:
    ann = Profile(1, email="ann@example.org", devices=(device("phone"),))
    plan = planning.plan(policy(PUSH, EMAIL), (), ann, None, PUSH_ONLY)
    assert plan.parts == (Part(PUSH, "phone"), Part(EMAIL, reason=Reason.NO_PROVIDER))


def test_fallback_starts_at_once_when_no_channel_has_a_provider() -> None:
    ann = Profile(1, email="ann@example.org")
    plan = planning.plan(policy(EMAIL, fallback=(INAPP,)), (), ann, None, PUSH_ONLY)
    assert plan == Plan((Part(EMAIL, reason=Reason.NO_PROVIDER, next="inapp"), Part(INAPP)))


def test_an_opt_out_from_a_channel_without_a_provider_is_still_a_wish() -> None:
    ann = Profile(1, email="ann@example.org", opt_outs=frozenset({("email", "*")}))
    plan = planning.plan(policy(EMAIL, fallback=(INAPP,)), (), ann, None, PUSH_ONLY)
    assert plan.parts == (Part(EMAIL, reason=Reason.OPTED_OUT),)


def test_the_row_learns_why_a_delivery_goes_nowhere_and_what_follows_it() -> None:
    plan = Plan((Part(PUSH, reason=Reason.NO_ADDRESS, next="email"), Part(EMAIL)), (SMS,))
    (suppressed,) = planning.unsent(plan, 7, 1_000)
    assert (suppressed.kind, suppressed.delivery) == (EventKind.SUPPRESSED, "push")
    assert (suppressed.reason, suppressed.next) == (Reason.NO_ADDRESS, "email")


def test_siblings_are_the_others_that_went_into_a_lane() -> None:
    plan = Plan((Part(PUSH, "a"), Part(PUSH, "b"), Part(EMAIL, reason=Reason.NO_ADDRESS), Part(INAPP)))
    assert plan.siblings(0) == (keys.delivery_suffix(PUSH, "b"), "inapp")


channels = st.lists(st.sampled_from(Channel), unique=True).map(tuple)
devices = st.lists(st.builds(device, st.text(min_size=1, max_size=5), st.integers(0, 9)), max_size=9).map(tuple)
profiles = st.builds(
    Profile,
    version=st.integers(0, 3),
    erased=st.booleans(),
    email=st.sampled_from(["", "ann@example.org"]),
    phone=st.sampled_from(["", "+4917012345"]),
    devices=devices,
    opt_outs=st.frozensets(st.tuples(st.sampled_from([*Channel, "*"]), st.sampled_from(["*", "offer", "marketing"]))),
)


@settings(deadline=None)
@given(channels, channels, channels, profiles)
def test_any_plan_is_bounded_and_reads_back_the_same(
    sent: tuple[Channel, ...], fallback: tuple[Channel, ...], requested: tuple[Channel, ...], profile: Profile
) -> None:
    plan = planning.plan(policy(*sent, fallback=fallback), requested, profile, None)
    assert len(plan.parts) <= planning.MAX_DELIVERIES
    assert len(set(plan.suffixes())) == len(plan.parts), "no delivery is in a plan twice"
    address = keys.recipient_address("sum|mer.sale", 3, 17)
    packed = planning.pack(plan, address)
    assert planning.unpack(packed) == (plan, address)
    assert packed.startswith(planning.address_prefix(address))


@settings(deadline=None)
@given(channels, channels, profiles)
def test_every_part_goes_into_a_lane_or_says_why_not(
    sent: tuple[Channel, ...], fallback: tuple[Channel, ...], profile: Profile
) -> None:
    plan = planning.plan(policy(*sent, fallback=fallback), (), profile, None)
    suffixes = plan.suffixes()
    for at, part in enumerate(plan.parts):
        assert not part.next or (part.reason and part.next in suffixes[at + 1 :])
        if not part.reason:
            assert not profile.erased and not profile.opted_out(part.channel, "offer", "marketing")
