"""Who is written to: customers with a profile who ask for codes, and readers who come with their phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

CUSTOMERS = 500


def customer(number: int) -> dict[str, Any]:
    """The profile of somebody who asks for a code now and then."""
    token = f"customer-phone-{number:03}"
    return {"user_id": _customer_id(number), "locale": "en", "devices": [{"token": token, "platform": "ios"}]}


def _customer_id(number: int) -> str:
    return f"customer-{number % CUSTOMERS:03}"


def lines(campaign_id: str, count: int) -> Iterator[bytes]:
    """A campaign's recipients as NDJSON, one after the other; nobody is in two campaigns."""
    for number in range(count):
        device = {"id": "phone", "token": f"{campaign_id}-phone-{number:07}", "platform": "android"}
        line = {
            "user_id": f"{campaign_id}-{number:07}",
            "params": {"name": f"Reader {number}", "order": f"A{number:07}"},
            "to": {"devices": [device]},
        }
        yield json.dumps(line).encode() + b"\n"


def campaign(campaign_id: str) -> dict[str, Any]:
    """What is asked for beside the recipients."""
    return {"campaign_id": campaign_id, "template": "order", "params": {"mark": campaign_id}}


def wish(number: int, wished_s: float) -> dict[str, Any]:
    """A login code, with the time at which it was wished for."""
    params = {"wished": f"{wished_s:.6f}", "code": f"{number:06}"}
    return {"user_id": _customer_id(number), "template": "code", "params": params}
