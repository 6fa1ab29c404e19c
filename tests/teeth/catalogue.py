"""Every patch. Each promise of docs/guarantees.md has one at least."""

from __future__ import annotations

from tests.teeth import (
    away,
    digests,
    facing_across,
    facing_in,
    facing_out,
    fallbacks,
    forgotten,
    ground,
    held,
    later,
    local_times,
    money,
    nights,
    pace,
    providers,
    silence,
    steering,
    too_much,
)
from tests.teeth.patch import Patch

PATCHES: tuple[Patch, ...] = (
    *facing_in.PATCHES,
    *facing_across.PATCHES,
    *facing_out.PATCHES,
    *away.PATCHES,
    *digests.PATCHES,
    *fallbacks.PATCHES,
    *forgotten.PATCHES,
    *ground.PATCHES,
    *held.PATCHES,
    *later.PATCHES,
    *local_times.PATCHES,
    *money.PATCHES,
    *nights.PATCHES,
    *pace.PATCHES,
    *providers.PATCHES,
    *silence.PATCHES,
    *steering.PATCHES,
    *too_much.PATCHES,
)
