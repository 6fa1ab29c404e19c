"""Stories word for word, as support reads them."""

from __future__ import annotations

from dataclasses import replace

from producers.explaining import story
from producers.explaining.facts import Facts, Missing, Source, Told, Way
from schemas.backstage import ClaimState, ClaimView, ProviderState, ProviderView
from schemas.messages import CampaignStatus, EventKind
from schemas.policies import OnUnknown, WhenRedisIsDown
from schemas.stores import SlotView
from tests.unit.producers.explaining.known import CODE, NEWS, NINE_MS, WELL, delivery, event, facts


def told(known: Facts) -> str:
    """The story as one text."""
    found = story.tell(known)
    lines = [found.in_short]
    for section in found.sections:
        lines += ["", section.title, *(f"  {line}" for line in section.lines)]
    return "\n".join([*lines, *found.missing])


def test_of_a_code_that_is_tried_again_it_is_told_when_by_whom_and_what_follows() -> None:
    waits = delivery(
        "retrying", reason="provider_error", calls=2, waits_until_ms=NINE_MS + 131_000, possible_duplicates=0
    )
    events = [
        event(EventKind.PLANNED, 20, "", plan=("sms",)),
        event(EventKind.QUEUED, 20),
        event(
            EventKind.RETRYING,
            60,
            call=1,
            hop=1,
            provider="texter",
            reason="provider_error",
            detail="HTTP 503",
            until_ms=NINE_MS + 1_000,
        ),
        event(
            EventKind.RETRYING,
            1_100,
            call=2,
            hop=2,
            provider="texter",
            reason="provider_error",
            detail="HTTP 503",
            until_ms=NINE_MS + 131_000,
        ),
    ]
    claims = {"sms": ClaimView(ClaimState.WAITING, 2, 0, tries=2)}
    assert told(facts([waits], events, claims=claims)) == (
        "It was not sent yet: it is going to be tried again. The provider had an error of its own; that usually passes "
        "by itself.\n"
        "\n"
        "What was asked\n"
        "  Template login-code (transactional), for user mia.\n"
        "  Asked for by a request to the API at 2026-11-30 09:00:00 UTC (10:00:00 in Europe/Berlin).\n"
        "  Worth sending until 2026-11-30 09:10:00 UTC (10:10:00 in Europe/Berlin); after that it expires.\n"
        "\n"
        "What was decided\n"
        "  The template tries, in order: SMS, email.\n"
        "  How the person is reached was decided at 2026-11-30 09:00:00 UTC (10:00:00 in Europe/Berlin):\n"
        "  SMS: used.\n"
        "  Email: only if nothing before it gets through.\n"
        "\n"
        "SMS\n"
        "  2026-11-30 09:00:00.020  put into its lane\n"
        "  2026-11-30 09:00:00.060  call 1 to texter: the provider had an error (HTTP 503), again at 2026-11-30 "
        "09:00:01 UTC (10:00:01 in Europe/Berlin)\n"
        "  2026-11-30 09:00:01.100  call 2 to texter: the provider had an error (HTTP 503), again at 2026-11-30 "
        "09:02:11 UTC (10:02:11 in Europe/Berlin)\n"
        "  Now: retrying. The provider had an error of its own; that usually passes by itself.\n"
        "  Next: it is tried again by texter at 2026-11-30 09:02:11 UTC (10:02:11 in Europe/Berlin).\n"
        "  2 calls were made so far; 2 of 8 tries are used up.\n"
        "  If it fails for good: email."
    )


def test_of_news_in_the_night_it_is_told_until_when_by_the_clock_of_the_person() -> None:
    held = delivery("held", "email", reason="quiet_hours", waits_until_ms=NINE_MS + 22 * 3_600_000)
    known = facts([held], policy=NEWS)
    assert known.asked is not None
    text = told(replace(known, asked=replace(known.asked, expires_at_ms=NINE_MS + 72 * 3_600_000)))
    assert "It was not sent yet: it is held back. It is night where the person lives" in text
    assert "Next: it is let go at 2026-12-01 07:00:00 UTC (08:00:00 in Europe/Berlin), to be sent by mail." in text


def test_a_call_in_doubt_is_told_plainly_and_nobody_is_left_wondering_whether_it_came_twice() -> None:
    sent = delivery("sent", provider="texter", calls=2, sent_at_ms=NINE_MS + 900, possible_duplicates=1)
    text = told(facts([sent], [event(EventKind.POSSIBLE_DUPLICATE, 800, call=1)]))
    assert "call 1 may have reached the provider although no answer was heard" in text
    assert "the person may have got it more than once." in text
    assert "The provider texter took it at 2026-11-30 09:00:00 UTC (10:00:00 in Europe/Berlin)." in text
    assert "Email: not needed." in text


def test_what_a_provider_says_is_shown_without_addresses_and_tokens() -> None:
    words = "550 <mia.m@example.org> unknown, tel +49 170 1234567, token fOb4x7Zk0pQ1aLmN2cDe3rTy5uIoP8sS9dFg"
    failed = delivery("failed", "email", reason="refused_by_provider", detail=words, provider="mail", calls=1)
    end = event(EventKind.FAILED, 50, "email", call=1, provider="mail", reason="refused_by_provider", detail=words)
    text = told(facts([failed], [end]))
    assert text.count("550 <(hidden)> unknown, tel (hidden), token (hidden)") == 2
    assert "example.org" not in text and "1234567" not in text and "fOb4" not in text


def test_a_lookalike_names_the_message_that_is_in_its_way() -> None:
    other = "ngmywiyjsg4zgklrtfyyc4mcv3fk7oxyabcd"
    held = event(EventKind.HELD, 900, hop=1, reason="lookalike", detail=f"like {other}")
    text = told(facts([delivery("held", reason="lookalike")], [held]))
    assert f"(like {other})" in text


def test_with_the_provider_refusing_our_account_support_knows_whom_to_call() -> None:
    waits = delivery("retrying", reason="provider_config", waits_until_ms=NINE_MS + 60_000)
    refuses = {**WELL, "texter": ProviderView(ProviderState.REFUSES_US, 42_000)}
    text = told(facts([waits], providers=refuses))
    assert "Everything for the provider texter is kept back, since it refuses our credentials or account." in text
    assert "it is tested again in 42 seconds." in text
    assert "What you can do: Tell the people on call." in text


def test_a_standby_is_named_as_the_one_that_sends_next_while_the_first_is_down() -> None:
    waits = delivery("queued", "push", device="1a2b3c4d")
    down = {**WELL, "gateway": ProviderView(ProviderState.OPEN, 3_000)}
    text = told(facts([waits], policy=NEWS, providers=down))
    assert "Push to device 1a2b3c4d" in text
    assert "Next: it is sent by spare as soon as its turn comes in the lane push.bulk." in text
    assert "No calls go to the provider gateway now, since too many failed. It is tested again in 3 seconds." in text


def test_with_redis_away_the_rest_is_told_and_the_gap_is_named() -> None:
    waits = delivery("queued")
    away = (Missing(Source.REDIS, "it does not answer"),)
    text = told(facts([waits], providers={}, missing=away))
    assert "Nothing is sent while Redis cannot be used; everything waits and goes on by itself." in text
    assert text.endswith("Redis could not be read: it does not answer.")
    assert "Next: it is sent as soon as its turn comes in the lane sms.transactional." in text


def test_without_the_row_nobody_pretends_to_know_what_became_of_it() -> None:
    away = (Missing(Source.ROW, "its owner is being restored"), Missing(Source.HISTORY, "the log does not answer"))
    text = told(facts(missing=away))
    assert text.startswith("What became of it cannot be read now.")
    assert "was not read from there yet" not in text
    assert "The status row could not be read: its owner is being restored." in text


def test_a_message_of_this_moment_is_on_its_way() -> None:
    text = told(facts())
    assert text.startswith("It was accepted and is on its way to a sender; nothing was sent yet.")
    assert "It is in the log and was not read from there yet" in text


def test_what_is_late_says_so() -> None:
    waits = delivery("retrying", reason="provider_throttled", waits_until_ms=NINE_MS + 1_000)
    text = told(facts([waits], now_ms=NINE_MS + 3_601_000))
    assert (
        "Next: it should have been tried again at 2026-11-30 09:00:01 UTC (10:00:01 in Europe/Berlin), 1 hour ago"
        in text
    )


def test_a_paused_campaign_says_how_it_goes_on() -> None:
    waits = delivery("held", "email", reason="campaign_paused")
    known = facts([waits], policy=NEWS, campaign=CampaignStatus.PAUSED)
    assert known.asked is not None
    text = told(replace(known, asked=replace(known.asked, way=Way.CAMPAIGN, campaign_id="spring")))
    assert "Asked for as part of the campaign spring, accepted at 2026-11-30 09:00:00 UTC" in text
    assert "Next: it stays where it is until somebody lets it go, or it expires." in text
    assert "What you can do: It goes on when the campaign is resumed: `tidings campaigns resume`." in text
    assert "The campaign is paused: nothing of it is sent until somebody resumes it." in text


def test_a_repeat_names_the_first_request() -> None:
    slot = SlotView("suppressed", "duplicate_of", "the same as nfirst", "mia", "login-code", NINE_MS, ())
    text = told(facts(slot=slot, repeats="nfirst"))
    assert "It is a repeat of nfirst, which was asked for first: only that one is sent." in text


def test_a_sender_that_died_with_it_is_told_apart_from_one_at_work() -> None:
    waits = delivery("queued")
    at_work = told(facts([waits], claims={"sms": ClaimView(ClaimState.SENDING, 1, NINE_MS + 30_000)}))
    assert "A sender has it in hand at this moment (call 1), until 2026-11-30 09:00:30 UTC" in at_work
    died = told(facts([waits], claims={"sms": ClaimView(ClaimState.LAPSED, 1, NINE_MS + 5_000)}))
    assert "The sender that had it in hand for call 1 died or hung; its time ran out at 2026-11-30 09:00:05 UTC" in died


def test_one_delivery_can_be_asked_about_alone() -> None:
    both = [delivery("sent", "email"), delivery("failed", "push", reason="tries_used_up", device="1a2b3c4d")]
    found = story.tell(facts(both, policy=NEWS, only="push/1a2b3c4d"))
    assert found.status == "failed"
    assert [section.title for section in found.sections if "device" in section.title or section.title == "Email"] == [
        "Push to device 1a2b3c4d"
    ]


def test_a_log_that_could_not_be_read_through_is_not_passed_off_as_the_whole_story() -> None:
    sent = delivery("sent", provider="texter", calls=3, sent_at_ms=NINE_MS)
    text = told(facts([sent], told=Told((), False, NINE_MS + 1_000)))
    assert "(There may be events after 2026-11-30 09:00:01 UTC (10:00:01 in Europe/Berlin) that are not listed" in text


def test_a_report_that_names_its_delivery_by_number_is_in_the_list_of_that_delivery() -> None:
    """Providers return the place in the plan, not a name."""
    arrived = delivery("delivered", "push", device="1a2b3c4d")
    events = [
        event(EventKind.PLANNED, 20, "", plan=("email", "push/1a2b3c4d")),
        event(EventKind.DELIVERED, 900, "", index=1, call=1),
    ]
    found = story.tell(facts([delivery("sent", "email"), arrived], events, policy=NEWS))
    said = {section.title: section.lines for section in found.sections}
    assert said["Push to device 1a2b3c4d"][0] == "2026-11-30 09:00:00.900  the provider reports: delivered"
    assert not any("delivered" in line for line in said["Email"])


def test_who_is_on_a_page_that_was_not_let_go_waits_for_the_campaign_and_for_nothing_else() -> None:
    text = told(facts(policy=NEWS, campaign=CampaignStatus.PAUSED))
    assert text.startswith("It waits for its turn in its campaign; nothing was sent yet. The campaign is paused")
    assert "Its page of the campaign was not let go yet" in text
    assert "was not read from there yet" not in text


def test_an_in_app_message_lies_in_the_inbox_and_was_taken_by_no_provider() -> None:
    text = told(facts([delivery("sent", "inapp", provider="inapp", calls=1, sent_at_ms=NINE_MS)], policy=NEWS))
    assert text.startswith("It was put into the person's inbox in the app.")
    assert "It lies in the inbox of the app since 2026-11-30 09:00:00 UTC" in text
    assert "took it" not in text


def test_a_template_that_would_rather_lose_than_repeat_says_why_nothing_followed() -> None:
    once = replace(CODE, on_unknown=OnUnknown.RISK_LOSS)
    doubt = event(EventKind.UNCONFIRMED, 50, call=1, provider="texter", detail="connection lost")
    text = told(facts([delivery("unconfirmed", calls=1)], [doubt], policy=once))
    assert "call 1 to texter: nobody knows what came of it (connection lost)" in text
    assert "so the call was not repeated." in text


def test_who_was_sent_to_and_never_heard_of_is_told_from_whom_nobody_knows_to_have_been() -> None:
    silence = event(EventKind.UNCONFIRMED, 50, call=1, provider="texter", detail="no report came in time")
    once = replace(CODE, on_unknown=OnUnknown.RISK_LOSS)
    text = told(facts([delivery("unconfirmed", calls=1, sent_at_ms=NINE_MS)], [silence], policy=once))
    assert text.startswith("It was sent: the provider accepted it, and no report came in time")
    assert "took it at 2026-11-30 09:00:00 UTC" in text
    assert "so the call was not repeated" not in text


def test_what_the_log_says_nothing_of_was_not_begun_even_if_the_row_cannot_be_read() -> None:
    away = (Missing(Source.ROW, "nobody owns it"), Missing(Source.REDIS, "it does not answer"))
    text = told(facts(providers={}, missing=away))
    assert text.startswith("It was accepted and is on its way to a sender; nothing was sent yet.")
    assert "Nothing is sent while Redis cannot be used" in text


def test_a_report_comes_after_its_call_though_the_clock_of_the_provider_is_slow() -> None:
    events = [
        event(EventKind.DELIVERED, 100, call=1),
        event(EventKind.SENT, 130, call=1, provider="texter"),
    ]
    found = story.tell(facts([delivery("delivered", provider="texter", calls=1)], events))
    lines = next(section.lines for section in found.sections if section.title == "SMS")
    assert ["accepted" in lines[0], "reports: delivered" in lines[1]] == [True, True]


def test_the_digest_that_it_went_out_in_is_named() -> None:
    digest = "nmm3tanjvmfswilrtfyyc4mbruq64ksy"
    gathered = delivery("suppressed", "push", reason="in_digest", detail=f"in digest {digest}")
    text = told(facts([gathered], policy=NEWS))
    assert text.startswith("It was not sent by itself: it went out together with others, as one message.")
    assert f"It was gathered with others into one message, a digest. Details: in digest {digest}." in text


def test_what_is_held_for_longer_than_it_is_worth_sending_is_going_to_expire() -> None:
    held = delivery("held", reason="spend_cap", waits_until_ms=NINE_MS + 15 * 3_600_000)
    text = told(facts([held]))
    assert (
        "Next: it expires at 2026-11-30 09:10:00 UTC (10:10:00 in Europe/Berlin); it would be let go at "
        "2026-12-01 00:00:00 UTC (01:00:00 in Europe/Berlin) only."
    ) in text
    assert "If it fails for good" not in text
    assert "The budget can be raised; then `tidings holds` lets go what is held" in text


def test_a_template_that_is_sent_without_redis_waits_for_it_only_where_the_person_is_not_known() -> None:
    alone = replace(CODE, when_redis_is_down=WhenRedisIsDown.SEND)
    away = (Missing(Source.ROW, "nobody owns it"), Missing(Source.REDIS, "it does not answer"))
    assert "nobody read this person in the last minutes" in told(facts(policy=alone, missing=away))
    planned = told(facts([delivery("queued")], policy=alone, missing=away[1:]))
    assert "This template is sent all the same while Redis cannot be used, at a lower rate." in planned


def test_of_a_message_cancelled_on_its_second_channel_the_cancel_is_told_and_nobody_is_asked_for_a_device() -> None:
    push = delivery("suppressed", "push", reason="no_address")
    email = delivery("cancelled", "email", reason="campaign_cancelled")
    slot = SlotView("cancelled", "campaign_cancelled", "", "mia", "news", NINE_MS, (push, email))
    text = told(facts([push, email], policy=NEWS, slot=slot))
    assert text.startswith("It was not sent: it was cancelled. Its campaign was cancelled.\n")
    assert "Add it to the profile" not in text
    of_push = told(facts([push, email], policy=NEWS, slot=slot, only="push"))
    assert of_push.startswith("It was not sent, on purpose. The person has no address for this channel.")


def test_whom_nothing_reaches_the_reason_that_counts_is_told_and_what_is_wanting() -> None:
    push = delivery("suppressed", "push", reason="no_address")
    email = delivery("suppressed", "email", reason="opted_out")
    slot = SlotView("suppressed", "opted_out", "", "mia", "news", NINE_MS, (push, email))
    text = told(facts([push, email], policy=NEWS, slot=slot))
    assert text.startswith("It was not sent, on purpose. The person does not want messages of this kind")
    assert "What you can do: Add it to the profile" in text
