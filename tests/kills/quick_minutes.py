"""A deployment for which the minutes of the delivery-rate alarm last a second; roles look for traps as in `role.py`.

Half an hour of it is over in half a minute, the week before in three hours: python -m tests.kills.quick_minutes WORDS
--config FILE. All else is as it is: what was sent and reported is counted, judged and acted upon by the roles.
"""

from __future__ import annotations

import functools
import sys

from deploy.processes import facing_across
from streams import delivery_shares, share_tally, share_watch
from tests.kills import role, up

COMMAND = (sys.executable, "-m", "tests.kills.quick_minutes")
MINUTE_MS, SOON_MS = 1_000, 10_000
ALARM_S = 30
"""How long an alarm lasts that cannot be judged any more: half an hour."""


def main() -> None:
    """Also what `deploy.fork_server` runs in a fork."""
    if sys.argv[1] == "up":
        up.main(COMMAND[-1])
        return
    for module in (delivery_shares, share_tally):
        vars(module)["MINUTE_MS"] = MINUTE_MS
    vars(share_tally)["SOON_MS"] = SOON_MS
    options = share_watch.WatchOptions(every_s=0.5, alarm_s=ALARM_S, avoid_s=3)
    vars(facing_across)["ShareWatch"] = functools.partial(share_watch.ShareWatch, options=options)
    role.main()


if __name__ == "__main__":
    main()
