"""A sender, a cancel and the pages that show a person's history must mean the same places in Redis."""

from __future__ import annotations

import pytest

from schemas import keys


@pytest.mark.parametrize("user_id", ["42", "ann@example.org", "a/b{c}:d"])
def test_a_send_touches_the_keys_that_everybody_else_asks(user_id: str) -> None:
    intent = keys.recipient_intent("default", "spring", user_id)
    assert keys.redis_send("default", user_id, intent, f"{intent}:sms") == (
        keys.redis_claim("default", user_id, f"{intent}:sms"),
        keys.redis_profile("default", user_id),
        keys.redis_cancel("default", user_id, intent),
        keys.redis_timeline("default", user_id),
    )
