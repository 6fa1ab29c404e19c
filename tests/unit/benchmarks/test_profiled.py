"""The sampler's parts follow the source: a part whose files have moved away would be counted to others in silence."""

from __future__ import annotations

import pytest

from benchmarks import profiled
from tests.tidy.house import ROOMS, ROOT

OURS = [beginning for beginning, _ in profiled.PARTS if beginning.partition("/")[0] in ROOMS]


@pytest.mark.parametrize("beginning", OURS)
def test_every_part_names_sources_that_are_there(beginning: str) -> None:
    path = ROOT / beginning.partition(":")[0]
    assert path.is_dir() or list(path.parent.glob(f"{path.name}*"))


def test_the_first_that_fits_decides_and_what_fits_nowhere_is_left_to_its_caller() -> None:
    assert profiled.part_of("/srv/consumers/providers/http.py:HttpProvider.send") == "HTTP client"
    assert profiled.part_of("/srv/consumers/bidding.py:Bidder.bid") == "the story of a send"
    assert profiled.part_of("/srv/schemas/codec.py:Codec.encode") == ""
