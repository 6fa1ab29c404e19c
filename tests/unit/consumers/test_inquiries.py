"""Goal: asking stays within its own pace, is patient with a lost answer, and rests while nothing answers."""

from __future__ import annotations

from consumers.inquiries import Inquiries, InquiryOptions
from consumers.limits import Token
from schemas.messages import EventKind
from schemas.reports import Report, Silence
from tests.doubles.manual_clock import START_MS, ManualClock

WORD = Report(EventKind.DELIVERED, "", "m", START_MS)


class Api:
    def __init__(self, *answers: Report | Silence) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def ask(self, message_id: str) -> Report | Silence:
        self.asked += 1
        return self.answers.pop(0) if self.answers else Silence.NO_ANSWER


class Purse:
    """Tokens port with so many tokens."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        self.left -= 1
        return [Token(0.0, 1)] if self.left >= 0 else []

    def spend(self, token: Token) -> bool:
        return True

    def give_back(self, token: Token) -> None: ...


class Bench:
    def __init__(self, api: Api, tokens: int = 100, options: InquiryOptions | None = None) -> None:
        self.clock = ManualClock()
        self.inquiries = Inquiries("gateway", api, Purse(tokens), self.clock, options, self._pause)

    async def _pause(self, pause_s: float) -> None:
        self.clock.advance(pause_s * 1000)


async def test_a_lost_answer_is_asked_for_again() -> None:
    api = Api(Silence.NO_ANSWER, WORD)
    assert await Bench(api).inquiries.ask("m") == WORD
    assert api.asked == 2


async def test_an_answer_without_a_word_is_an_answer() -> None:
    api = Api(Silence.PENDING, WORD)
    assert await Bench(api).inquiries.ask("m") is Silence.PENDING
    assert api.asked == 1


async def test_without_a_place_in_its_pace_nothing_is_asked() -> None:
    api = Api(WORD)
    assert await Bench(api, tokens=0).inquiries.ask("m") is Silence.UNASKED
    assert api.asked == 0


async def test_where_nothing_answers_asking_rests_for_a_while() -> None:
    api = Api()
    bench = Bench(api, options=InquiryOptions(tries=3, failures=5, rest_s=30.0))
    for _ in range(10):
        assert await bench.inquiries.ask("m") in (Silence.NO_ANSWER, Silence.UNASKED)
    assert api.asked == 5
    bench.clock.advance(31_000)
    api.answers = [WORD]
    assert await bench.inquiries.ask("m") == WORD
