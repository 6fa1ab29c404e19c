"""A provider's webhooks, posted by the test itself where the simulator's own would be too tidy."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from deploy.simulators import callbacks
from tests.acceptance import deployment
from tests.acceptance.world import Answer, World

TEXTER, GATEWAY = "texter", "gateway"


async def reference(world: World, to: str) -> str:
    """What the provider was given for the newest message to this address."""
    messages = await world.until(lambda: world.messages(to), bool, f"something reaches {to}")
    return str(messages[-1]["reference"])


async def post(world: World, provider: str, *reports: dict[str, Any], secret: str = deployment.SECRET) -> Answer:
    """One webhook with these reports, signed."""
    body = json.dumps(list(reports)).encode()
    headers = callbacks.signature(secret, f"msg_{secrets.token_hex(8)}", int(time.time()), body)
    url = f"{world.deployment.callbacks}/v1/callbacks/{provider}"
    return await world.ask("POST", url, data=body, headers={"Content-Type": "application/json", **headers})
