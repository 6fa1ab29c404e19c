"""The handler of `route recipients`: profiles, opt-outs, suppressions, cancels and inbox from the log to Redis.

The API writes the same facets itself right after its ack, so that callers read what they wrote; this handler
makes it certain, and `rebuild` beside it puts everything back after Redis was lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import AnswerTo, Done, Outgoing, Record
from streams.rebuild import Rebuild
from streams.recipients_apply import Applier


class RouteRecipients:
    """Handler port."""

    def __init__(self, applier: Applier, rebuild: Rebuild) -> None:
        self._applier = applier
        self._rebuild = rebuild

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Applies the batch. Raises StoreDown while Redis is away, Poison for the first unreadable record."""
        applied = await self._applier.apply(records)
        await self._rebuild.note_applied(applied.good)
        follow_up: tuple[Outgoing, ...] = applied.follow_up
        for record in applied.good:
            # What an erasure left behind is removed by the batch's first answer; repeating it does no harm.
            answer(record, Done(publish=follow_up))
            follow_up = ()
        for _, poison in applied.bad:
            raise poison
