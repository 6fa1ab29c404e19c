"""Who waits to go out with others, until when, and what is said when they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from consumers import digests
from consumers.render import Renderer
from consumers.verdicts import Verdict
from schemas import keys
from schemas.errors import Poison
from schemas.messages import Channel, Delivery, EventKind
from schemas.policies import MessageClass, OverCap, TemplatePolicy
from schemas.reasons import Reason
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import SenderBench, events, shown

WINDOW_MS, MINUTE_MS, HOUR_MS, DAY_MS = 300_000, 60_000, 3_600_000, 86_400_000
COMMENTS = TemplatePolicy("comments", MessageClass.MARKETING, (Channel.SMS,), digest_ms=WINDOW_MS)
CAPPED = TemplatePolicy("tips", MessageClass.MARKETING, (Channel.SMS,), caps={"day": 3}, over_cap=OverCap.DIGEST)
MIDNIGHT_MS = START_MS + 9 * HOUR_MS
TEXT = "{% block text %}{{ items[0].by }}{% if others %} and {{ others }} others{% endif %} ({{ count }}){% endblock %}"


def comment(**changes: Any) -> Delivery:
    return single(template="comments", expires_at_ms=START_MS + 3 * DAY_MS, **changes)


class TestWaiting:
    def test_a_message_waits_for_those_that_come_within_its_templates_time(self) -> None:
        assert digests.is_gathered(comment(), COMMENTS)
        assert digests.gathered(comment(), COMMENTS, 0, START_MS) == Verdict(
            EventKind.HELD, START_MS, Reason.DIGEST, until_ms=START_MS + WINDOW_MS
        )

    @pytest.mark.parametrize("changes", [{"digest_of": 5}, {"digest_of": 1}, {"call": 2}])
    def test_a_digest_who_stayed_alone_and_who_was_called_already_wait_for_nobody(
        self, changes: dict[str, int]
    ) -> None:
        assert not digests.is_gathered(comment(**changes), COMMENTS)

    def test_of_a_template_without_a_digest_nothing_waits(self) -> None:
        assert not digests.is_gathered(comment(), replace(COMMENTS, digest_ms=0))

    def test_in_quiet_hours_it_waits_for_all_of_the_night(self) -> None:
        for morning_ms, until_ms in ((8 * HOUR_MS, 8 * HOUR_MS), (60_000, WINDOW_MS)):
            waits = digests.gathered(comment(), COMMENTS, START_MS + morning_ms, START_MS)
            assert waits.until_ms == START_MS + until_ms

    def test_who_would_expire_meanwhile_ends_the_window_at_once(self) -> None:
        """By way of hold: a copy of it may have gone out in a digest."""
        now_ms, morning_ms = START_MS + 3 * DAY_MS - WINDOW_MS, START_MS + 3 * DAY_MS - 1
        for quiet_until_ms, until_ms in ((0, now_ms), (morning_ms, morning_ms)):
            waits = digests.gathered(comment(), COMMENTS, quiet_until_ms, now_ms)
            assert (waits.kind, waits.until_ms) == (EventKind.HELD, until_ms)


class TestAboveTheCap:
    def test_it_waits_for_the_next_day_of_its_user_with_all_others_of_theirs(self) -> None:
        first, second = [
            digests.over_cap(single("ada", word), CAPPED, MIDNIGHT_MS, "3 a day", START_MS) for word in "ab"
        ]
        assert (first.kind, first.reason, first.detail) == (EventKind.HELD, Reason.DIGEST, "3 a day")
        assert MIDNIGHT_MS <= first.until_ms < MIDNIGHT_MS + HOUR_MS / 2
        assert first.until_ms == second.until_ms

    def test_it_is_dropped_where_its_template_says_so_or_it_would_expire_before(self) -> None:
        dropped = Verdict(EventKind.SUPPRESSED, START_MS, Reason.CAPPED, "3 a day")
        drops = replace(CAPPED, over_cap=OverCap.DROP)
        assert digests.over_cap(single(), drops, MIDNIGHT_MS, "3 a day", START_MS) == dropped
        late_ms = single().expires_at_ms
        assert digests.over_cap(single(), CAPPED, late_ms, "3 a day", START_MS) == dropped

    def test_the_spread_makes_nobody_expire(self) -> None:
        found = digests.over_cap(single(expires_at_ms=MIDNIGHT_MS + 1), CAPPED, MIDNIGHT_MS, "", START_MS)
        assert found.until_ms == MIDNIGHT_MS

    def test_nobody_is_let_go_just_before_they_expire(self) -> None:
        people = [single(f"user{number}", expires_at_ms=MIDNIGHT_MS + 2 * MINUTE_MS) for number in range(100)]
        found = [digests.over_cap(one, CAPPED, MIDNIGHT_MS, "", START_MS).until_ms - MIDNIGHT_MS for one in people]
        assert 0 <= min(found) < max(found) < MINUTE_MS


class TestText:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "comments"
        folder.mkdir()
        (folder / "sms.en.j2").write_text("{% block text %}{{ by }} wrote{% endblock %}")
        (folder / "sms.digest.en.j2").write_text(TEXT)
        (folder / "sms.digest.de.j2").write_text(TEXT.replace("others{", "andere{").replace(" and ", " und "))
        return tmp_path

    def test_many_messages_have_a_text_of_their_own_in_the_users_language(self, folder: Path) -> None:
        renderer = Renderer(folder, {"default": "en"})
        many = comment(digest_of=5, params='{"items": [{"by": "Mia"}], "count": 5, "others": 4}')
        assert renderer.render(many, "en").text == "Mia and 4 others (5)"
        assert renderer.render(many, "de-AT").text == "Mia und 4 andere (5)"

    @pytest.mark.parametrize("digest_of", [0, 1])
    def test_one_message_has_its_usual_text(self, folder: Path, digest_of: int) -> None:
        alone = comment(digest_of=digest_of, params='{"by": "Mia"}')
        assert Renderer(folder, {"default": "en"}).render(alone, "de").text == "Mia wrote"

    def test_a_template_without_that_text_fails_instead_of_showing_the_usual_one(self, folder: Path) -> None:
        for text in folder.glob("*/sms.digest.*"):
            text.unlink()
        with pytest.raises(Poison, match=r"no template comments for sms\.digest"):
            Renderer(folder, {}).render(comment(digest_of=5), "en")


class TestSender:
    @pytest.fixture
    def bench(self, tmp_path: Path) -> SenderBench:
        bench = SenderBench(tmp_path)
        bench.policy = replace(bench.policy, digest_ms=WINDOW_MS)
        return bench

    async def test_it_says_that_it_waits_for_a_digest_and_calls_nobody(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(single())
        (event,) = events(answer)
        assert (event.kind, event.reason) == (EventKind.HELD, Reason.DIGEST)
        assert event.until_ms == bench.clock.now_ms() + WINDOW_MS
        assert bench.provider.calls == []

    async def test_who_would_expire_meanwhile_passes_through_hold_all_the_same(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(single(expires_at_ms=bench.clock.now_ms() + WINDOW_MS))
        assert shown(answer) == [("held", "digest")]
        assert events(answer)[0].until_ms == bench.clock.now_ms()
        assert bench.provider.calls == []

    async def test_the_digest_itself_is_sent_whatever_cap_or_window_its_messages_met(self, bench: SenderBench) -> None:
        (bench.folder / "welcome" / "sms.digest.de.j2").write_text(TEXT)
        many = single(digest_of=2, params=orjson.dumps({"items": [{"by": "Mia"}], "count": 2, "others": 1}).decode())
        await bench.send(many)
        assert [call.content.text for call in bench.provider.calls] == ["Mia and 1 others (2)"]

    async def test_above_the_cap_messages_wait_for_the_next_day_and_a_digest_counts_as_one(
        self, bench: SenderBench
    ) -> None:
        bench.policy = replace(bench.policy, digest_ms=0, caps={"day": 1}, over_cap=OverCap.DIGEST)
        (bench.folder / "welcome" / "sms.digest.de.j2").write_text(TEXT)
        answers = [*await bench.send(single(event_id="a")), *await bench.send(single(event_id="b"))]
        assert [shown(answer) for answer in answers] == [[("sent", "")], [("held", "digest")]]
        waits = events(answers[1])[0]
        bench.clock.advance(waits.until_ms - bench.clock.now_ms())
        many = single(event_id="c", digest_of=2, params='{"items": [{"by": "Mia"}], "count": 2, "others": 1}')
        many = replace(many, expires_at_ms=bench.clock.now_ms() + 3 * DAY_MS, released_at_ms=bench.clock.now_ms())
        assert [shown(answer) for answer in await bench.send(many)] == [[("sent", "")]]
        again = replace(many, intent=single(event_id="d").intent, slot=9)
        assert [shown(answer) for answer in await bench.send(again)] == [[("held", "digest")]], "never above the cap"

    async def test_a_copy_of_what_went_out_in_a_digest_ends_in_it_when_the_cap_lets_it_through(
        self, bench: SenderBench
    ) -> None:
        bench.policy = replace(bench.policy, digest_ms=0, caps={"day": 1}, over_cap=OverCap.DIGEST)
        key = keys.redis_digest("default", "42", single().intent, "sms")
        bench.trips.kept[key] = (b"digest/1 n2",)
        (answer,) = await bench.send(single())
        assert shown(answer) == [("suppressed", "in_digest")]
        assert events(answer)[0].detail == "in digest n2"
        assert bench.provider.calls == []
        assert [shown(one) for one in await bench.send(single(event_id="other"))] == [[("sent", "")]], (
            "its place is free"
        )

    async def test_what_was_sent_is_kept_out_of_the_digest_that_a_copy_of_it_waits_for(
        self, bench: SenderBench
    ) -> None:
        bench.policy = replace(bench.policy, digest_ms=0, caps={"day": 1}, over_cap=OverCap.DIGEST)
        await bench.send(single())
        key = keys.redis_digest("default", "42", single().intent, "sms")
        assert bench.trips.kept[key][0] == keys.IN_NO_DIGEST
        assert "NX" in bench.trips.kept[key]
