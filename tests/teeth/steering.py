"""What is promised to whoever steers a campaign, broken one by one."""

from __future__ import annotations

from tests.teeth.patch import Patch

_ORDERS = "tests/contract/api/test_campaign_orders.py::"
_STOPS = "tests/unit/streams/test_campaign_stops.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="writes a cancel where the next pause overwrites it",
        promise=3,
        file="schemas/keys.py",
        old='            return "cancel"',
        new='            return ""',
        test=_ORDERS + "test_orders_of_two_operators_at_once_do_not_undo_each_other",
        suffers="A campaign that was called off goes out after the topic was compacted and the senders restarted.",
    ),
    Patch(
        name="lets a new pace overwrite a pause",
        promise=3,
        file="schemas/keys.py",
        old="            return order.value",
        new='            return ""',
        test=_ORDERS + "test_orders_of_two_operators_at_once_do_not_undo_each_other",
        suffers="One operator pauses, another slows down at the same moment; after a restart it runs on.",
    ),
    Patch(
        name="takes a new pace for a resume",
        promise=3,
        file="consumers/controls.py",
        old="            case CampaignOrder.PACE | CampaignOrder.WEIGHT:\n                return",
        new="            case CampaignOrder.PACE | CampaignOrder.WEIGHT:\n"
        "                self._paused.pop(campaign, None)",
        test="tests/unit/consumers/test_controls.py::test_a_pace_or_a_weight_neither_resumes_nor_pauses",
        suffers="A paused campaign is made slower before it is resumed, and begins to send.",
    ),
    Patch(
        name="answers a pause before the log has it",
        promise=3,
        file="producers/api/campaign_orders.py",
        old="    placed = await parts.publisher.publish([_record(parts, order, headers) for order in orders])",
        new="""    import asyncio

    records = [_record(parts, order, headers) for order in orders]
    parts.publisher.later = asyncio.ensure_future(parts.publisher.publish(records))
    placed = []""",
        test=_ORDERS + "test_while_the_log_is_away_no_order_is_confirmed",
        suffers="An operator sees the campaign paused while the broker is away, goes home, and it sends all night.",
    ),
    Patch(
        name="lists what was cancelled among what waits in hold",
        promise=3,
        file="deploy/commands/holds.py",
        old="        return delivery is not None and (delivery.tenant, delivery.user_id, delivery.intent) in cancelled",
        new="        return delivery is None and bool(cancelled)",
        test="tests/unit/deploy/test_holds_command.py"
        "::test_what_its_caller_cancelled_waits_no_more_though_it_lies_in_hold_until_its_time",
        suffers="An operator sees a cancelled message wait, lets it go, hears that it was ordered, and nothing comes.",
    ),
    Patch(
        name="takes orders after a cancel",
        promise=10,
        file="producers/campaign.py",
        old='            return f"{self.campaign_id} was cancelled, which cannot be undone"',
        new='            return ""',
        test=_ORDERS + "test_after_a_cancel_nothing_else_can_be_ordered",
        suffers="Somebody resumes a cancelled campaign, is told 202, and waits for mails that never go.",
    ),
    Patch(
        name="lets a cancelled campaign's pages lie",
        promise=6,
        file="streams/dispatch.py",
        old="            if end is not None and campaign.next_page < request.pages:",
        new="            if end is not None and campaign.next_page < 0:",
        test=_STOPS + "test_a_cancel_ends_pages_not_let_go_at_once_and_the_campaign_with_its_last_delivery",
        suffers="A cancelled campaign never ends, and nobody can say what became of most of its recipients.",
    ),
    Patch(
        name="keeps a paused campaign from expiring",
        promise=3,
        file="streams/campaigns.py",
        old="    if (campaign.next_page < request.pages or campaign.held) and now_ms >= request.expires_at_ms:",
        new="    if not campaign.is_paused and now_ms >= request.expires_at_ms and campaign.next_page < request.pages:",
        test=_STOPS + "test_a_paused_campaign_lets_nothing_go_and_expires_all_the_same",
        suffers="The offers of last week go out when somebody resumes the campaign.",
    ),
)
