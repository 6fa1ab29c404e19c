"""Nothing is left without words: whoever adds a reason, a state or a campaign status must say what support tells."""

from __future__ import annotations

from producers.explaining import words
from schemas import states
from schemas.backstage import ProviderState
from schemas.messages import CampaignStatus
from schemas.reasons import Reason


def test_every_reason_has_a_sentence_and_a_short_word() -> None:
    assert set(words.REASONS) == set(Reason)
    wordless = [reason for reason, said in words.REASONS.items() if reason and not (said.short and said.why)]
    assert wordless == []


def test_sentences_are_whole_and_what_to_do_as_well() -> None:
    said = [text for one in words.REASONS.values() for text in (one.why, one.do) if text]
    said += [*words.STATES.values(), *words.WHAT_TO_DO.values(), *words.CAMPAIGNS.values()]
    assert [text for text in said if not text[0].isupper() or text[-1] not in ".`"] == []


def test_every_state_that_is_shown_has_a_sentence() -> None:
    told_apart = set(states.STATES) - {"planned", "possible_duplicate"}
    assert set(words.STATES) == told_apart | {states.ACCEPTED}


def test_every_status_of_a_campaign_and_every_trouble_of_a_provider_has_one() -> None:
    assert set(words.CAMPAIGNS) == set(CampaignStatus)
    assert set(words.PROVIDERS) == set(ProviderState)
