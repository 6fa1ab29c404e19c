"""`tidings up` whose roles look for traps, and are started again at once: python -m tests.kills.up up --config FILE."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy import catalogue, fork_client, roles, running, settings, up
from tests.kills import role

WAITS = up.Waits(backoff_first_s=0.3, calm_after_s=1.0)


def main(program: str = role.__name__) -> None:
    """program: the module that a role runs."""
    config = Path(sys.argv[-1])
    chosen = settings.load(config)
    forks = fork_client.ForkClient(program, roles.MODULES, chosen.up.logs / "fork-server.log")
    supervisor = up.Supervisor(tuple(roles.of(chosen)), ("--config", str(config)), chosen.up.logs, forks, WAITS)

    async def whole() -> None:
        async with forks:
            await catalogue.provision(chosen, True)
            await supervisor.run(chosen.up.ready_within_s)

    running.run("up", whole, up.STOP_WITHIN_S)


if __name__ == "__main__":
    main()
