"""`streams fan_out` with an expander that can be told to hold pages: BOOTSTRAP PREFIX FOLDER HELD...

Prints the number of each page as it is done. Pages whose numbers are in HELD never are.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.messages import ReleasedPage
from schemas.records import Headers
from schemas.topics import Topics
from streams import agents


async def main(bootstrap: str, prefix: str, folder: str, *held: str) -> None:
    topics, kafka = Topics(prefix), {"bootstrap.servers": bootstrap}

    async def expand(page: ReleasedPage, headers: Headers) -> None:
        if str(page.page) in held:
            await asyncio.Event().wait()
        print(page.page, flush=True)

    options = agents.FaustOptions(kafka, Path(folder), "the same", session_s=6.0, commit_every_s=0.2)
    letters = DeadLetters(topics, SystemClock())
    await agents.fanning_out(topics, options, expand, KafkaPublisher(kafka), letters.letter).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
