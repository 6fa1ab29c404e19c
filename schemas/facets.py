"""How a user's facets lie on `recipients`: names, record keys, and the one partition they share.

A facet's name is the last part of its record key. All facets of a user go to the partition of the user
alone, so their offsets can be compared and an erasure ends everything before it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from schemas import codec, keys, partitions
from schemas.errors import Poison
from schemas.messages import FacetKind, RecipientFacet
from schemas.reasons import ParkReason
from schemas.records import Headers, Outgoing

USER = "user"
ERASED = "erased"
DEVICE = "device/"
OPT_OUT = "optout/"
_NAME = re.compile(r"user|erased|device/[^/]+|optout/[^/]+/[^/]+")


class FacetTopic:
    """Makes the records of `recipients`; partitions is what the broker has, and must never change."""

    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        self._partition_count = partition_count

    def record(
        self, tenant: str, user_id: str, facet_name: str, facet: RecipientFacet | None, headers: Headers = ()
    ) -> Outgoing:
        """The record of one facet; None removes it."""
        return Outgoing(
            self.name,
            keys.facet_key(tenant, user_id, facet_name).encode(),
            None if facet is None else codec.encode(facet),
            headers,
            partitions.murmur2_partition(keys.user_key(tenant, user_id).encode(), self._partition_count),
        )


def name_of(facet: RecipientFacet) -> str:
    """The facet's name, as it follows from its content."""
    if facet.facet is FacetKind.DEVICE:
        assert facet.device is not None
        return keys.device_facet(facet.device.id)
    if facet.facet is FacetKind.OPT_OUT:
        return keys.opt_out_facet(facet.channel, facet.kind)
    return ERASED if facet.facet is FacetKind.ERASED else USER


def owner_of(key: bytes | None) -> tuple[str, str, str]:
    """(tenant, user id, facet name) of a record key. Raises Poison for what is not a key of ours."""
    parts = (key or b"").decode("utf-8", "replace").split("/", 2)
    if len(parts) != 3 or not all(parts) or not _NAME.fullmatch(parts[2]):
        raise Poison(ParkReason.UNDECODABLE, "the key is not tenant/user/facet")
    return unquote(parts[0]), unquote(parts[1]), parts[2]


@lru_cache(maxsize=4096)
def opt_out_of(name: str) -> tuple[str, str]:
    """(channel, kind) of an opt-out's name."""
    _, channel, kind = name.split("/")
    return unquote(channel), unquote(kind)
