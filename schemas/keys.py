"""Identity: ids, addresses, delivery keys, record keys, Redis keys. Nowhere else are such strings built.

Every key starts with the tenant. User-chosen ids are percent-encoded inside keys, so no id can forge
another's key. A notification id names the place of its accepted record and ends in a MAC: it can be
looked up without a table and cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from schemas.messages import CampaignOrder, Channel

SLOTS_PER_ROW = 16
"""Singles per status row; a campaign row holds one page."""
ID_MAC_BYTES = 5
REFERENCE_MAC_BYTES = 8
SHA256_BLOCK = 64
USER_ID_MAX = 128
REMEMBERED_USERS = 8_192
"""Each send needs its user's key several times."""
FIRST_FALLBACK_INDEX = 8
"""Plans have at most this many deliveries."""
_CHANNELS = tuple(Channel)
"""Append only: their order is part of references given to providers."""
_PLAIN = re.compile(r"[A-Za-z0-9_~-]*", re.ASCII)
_BASE32 = re.compile(r"[a-z2-7]{1,1000}", re.ASCII)
_BASE32_DIGITS = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz234567", b"0123456789abcdefghijklmnopqrstuv")
_SINGLE_ROW = re.compile(r"n\.[0-9a-f]{8}\.[0-9]{1,9}\.[0-9]{1,18}", re.ASCII)
_CAMPAIGN_ROW = re.compile(r"c\.(?:[A-Za-z0-9_~-]|%[0-9A-F]{2}){1,2000}\.(?:0|[1-9][0-9]{0,8})")


class Address(NamedTuple):
    """Where a notification's status lives. row is "n.<epoch>.<partition>.<offset // 16>" or "c.<campaign>.<page>"
    (the campaign percent-encoded); slot is offset % 16, or the position in the page.
    """

    row: str
    slot: int


@dataclass(slots=True)
class Reference:
    """What a provider returns to us in a callback: exactly which call of which delivery, and to whom.

    Never changed, though not frozen: one is made of every report, and a frozen one costs twice as much.

    channel and address_hash (of `address_hash`) name the address to suppress after a hard bounce or a
    complaint; both are empty where there is none to suppress (push, inapp).
    """

    tenant: str
    address: Address
    index: int
    generation: int
    call: int
    channel: str = ""
    address_hash: str = ""


def encoded(text: str) -> str:
    """Percent-encoded so that it holds none of the separators of our keys."""
    if _PLAIN.fullmatch(text):  # nearly every id, at a fifth of the price
        return text
    return quote(text, safe="-_~").replace(".", "%2E")


def decoded(text: str) -> str:
    """What `encoded` was given."""
    return unquote(text)


def single_address(epoch: str, partition: int, offset: int) -> Address:
    """The address of a single accepted at this place of the entry topic with this log epoch."""
    return Address(f"n.{epoch}.{partition}.{offset // SLOTS_PER_ROW}", offset % SLOTS_PER_ROW)


def single_place(address: Address) -> tuple[str, int, int]:
    """(log epoch, partition, offset) of a single's accepted record."""
    _, epoch, partition, block = address.row.split(".")
    return epoch, int(partition), int(block) * SLOTS_PER_ROW + address.slot


def recipient_address(campaign_id: str, page: int, position: int) -> Address:
    """The address of a campaign's recipient."""
    return Address(f"c.{encoded(campaign_id)}.{page}", position)


def is_single_row(row: str) -> bool:
    """Whether it is well formed as the row of a single."""
    return _SINGLE_ROW.fullmatch(row) is not None


def is_row(row: str) -> bool:
    """Whether it is well formed, as the row of a single or of a campaign's page."""
    return is_single_row(row) or _CAMPAIGN_ROW.fullmatch(row) is not None


def is_campaign_row(row: str) -> bool:
    return row.startswith("c.")


def campaign_of_row(row: str) -> tuple[str, int]:
    """(percent-encoded campaign id, page) of a campaign row."""
    _, campaign, page = row.split(".")
    return campaign, int(page)


def log_epoch(region: str, topic_id: str) -> str:
    """Short hash of region and topic id: a re-created topic or another region never repeats an address."""
    return hashlib.sha256(f"{region}\n{topic_id}".encode()).hexdigest()[:8]


class Ids:
    """Makes and reads notification ids and references; the secret is the deployment's own."""

    def __init__(self, secret: bytes) -> None:
        block = (hashlib.sha256(secret).digest() if len(secret) > SHA256_BLOCK else secret).ljust(SHA256_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def notification_id(self, tenant: str, address: Address) -> str:
        """The public id of what lives at this address."""
        body = _packed_address(address)
        return address.row[0] + _base32(body + self._mac(tenant, b"id", body, ID_MAC_BYTES))

    def address(self, tenant: str, notification_id: str) -> Address | None:
        """The address behind an id; None when it is not one of this tenant's ids."""
        body = _split_mac(notification_id[1:], ID_MAC_BYTES)
        if body is None or not hmac.compare_digest(self._mac(tenant, b"id", body[0], ID_MAC_BYTES), body[1]):
            return None
        return _unpacked_address(notification_id[0], body[0])

    def reference(self, reference: Reference) -> str:
        """The token a provider carries back; its own MAC makes it unforgeable."""
        head = "\n".join(
            (
                reference.tenant,
                reference.address.row,
                str(reference.address.slot),
                str(reference.index),
                str(reference.generation),
                str(reference.call),
                reference.channel,
                reference.address_hash,
            )
        ).encode()
        return _base32(head + self._mac(reference.tenant, b"ref", head, REFERENCE_MAC_BYTES))

    def read_reference(self, text: str) -> Reference | None:
        """The reference behind the token; None when it is not one of ours."""
        body = _split_mac(text, REFERENCE_MAC_BYTES)
        if body is None:
            return None
        parts = body[0].decode("utf-8", "replace").split("\n")
        if len(parts) != 8 or not hmac.compare_digest(
            self._mac(parts[0], b"ref", body[0], REFERENCE_MAC_BYTES), body[1]
        ):
            return None
        slot, index, generation, call = map(int, parts[2:6])
        return Reference(parts[0], Address(parts[1], slot), index, generation, call, parts[6], parts[7])

    def _mac(self, tenant: str, purpose: bytes, body: bytes, length: int) -> bytes:
        """HMAC-SHA256 as RFC 2104 writes it, the key worked in once: every send makes two, at half the price."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(b"%b\0%b\0%b" % (purpose, tenant.encode(), body))
        outer.update(inner.digest())
        return outer.digest()[:length]


@lru_cache(REMEMBERED_USERS)
def device_hash(device_id: str) -> str:
    """8 hex digits that stand for a device in ids and rows."""
    return hashlib.sha256(device_id.encode()).hexdigest()[:8]


@lru_cache(REMEMBERED_USERS)
def delivery_suffix(channel: Channel, device_id: str = "") -> str:
    """How a delivery is named inside its slot: "email", or "push/1a2b3c4d"."""
    return f"{channel}/{device_hash(device_id)}" if device_id else str(channel)


def shown_suffix(channel: str, hashed_device: str) -> str:
    """The suffix of a delivery as a row shows it, where the device is hashed already."""
    return f"{channel}/{hashed_device}" if hashed_device else channel


def fallback_index(channel: Channel) -> int:
    """Index of a delivery that a fallback adds: plans end below it, so it is known without the plan."""
    return FIRST_FALLBACK_INDEX + _CHANNELS.index(channel)


def fallback_name(index: int) -> str:
    """The delivery with this fallback_index; "" when it is no such number."""
    place = index - FIRST_FALLBACK_INDEX
    return _CHANNELS[place].value if 0 <= place < len(_CHANNELS) else ""


def delivery_id(notification_id: str, suffix: str) -> str:
    """The public id of one delivery: notification id + ".channel[.device hash]"."""
    return f"{notification_id}.{suffix.replace('/', '.')}"


@lru_cache(REMEMBERED_USERS)
def user_key(tenant: str, user_id: str) -> str:
    """tenant/user: the record key of entry topics, lanes and tiers, and the Redis hash tag."""
    return f"{encoded(tenant)}/{encoded(user_id)}"


def single_intent(tenant: str, event_id: str) -> str:
    """What makes two single requests the same."""
    return f"{encoded(tenant)}/e/{encoded(event_id)}"


def recipient_intent(tenant: str, campaign_id: str, user_id: str) -> str:
    """What makes two recipients of one campaign the same."""
    return f"{encoded(tenant)}/c/{encoded(campaign_id)}/{encoded(user_id)}"


def delivery_key(intent: str, channel: Channel, device_id: str = "") -> str:
    """The dedupe key: intent + channel (+ device)."""
    return f"{intent}:{delivery_suffix(channel, device_id)}"


def row_key(tenant: str, row: str) -> str:
    """Record key of `delivery.status` and key of the status table."""
    return f"{encoded(tenant)}/{row}"


def campaign_key(tenant: str, campaign_id: str) -> str:
    """Record key of the campaign topics."""
    return f"{encoded(tenant)}/{encoded(campaign_id)}"


def cancel_key(tenant: str, campaign_id: str) -> str:
    """The cancel's own key on `campaign.control`: a later pause or resume cannot overwrite it."""
    return control_key(tenant, campaign_id, CampaignOrder.CANCELLED)


def control_key(tenant: str, campaign_id: str, order: CampaignOrder) -> str:
    """Record key of an order: pause and resume share one, every other kind has its own."""
    kind = order_kind(order)
    return f"{campaign_key(tenant, campaign_id)}#{kind}" if kind else campaign_key(tenant, campaign_id)


def order_kind(order: CampaignOrder) -> str:
    """What stands in an order's record key behind the campaign; "" of a pause or a resume."""
    match order:
        case CampaignOrder.RUNNING | CampaignOrder.PAUSED:
            return ""
        case CampaignOrder.CANCELLED:
            return "cancel"
        case CampaignOrder.PACE | CampaignOrder.WEIGHT:
            return order.value


def campaign_part(key: bytes) -> tuple[str, str, str]:
    """(tenant, campaign id, what stands behind them) of a record key of the campaign topics: the partition of counts,
    the kind of an order, else "". Of other keys it says something that is no campaign's.
    """
    campaign, _, part = key.decode(errors="replace").replace(":", "#").partition("#")
    tenant, _, campaign_id = campaign.partition("/")
    return decoded(tenant), decoded(campaign_id), part


def page_key(tenant: str, campaign_id: str, page: int) -> str:
    """Record key of `campaign.pages`."""
    return f"{campaign_key(tenant, campaign_id)}:{page}"


def held_page_id(tenant: str, campaign_id: str, page: int, slots: Sequence[int], hop: int) -> str:
    """Hold id of a part of a page. slots: those that wait, () when the whole page does.

    Other slots, another id: where a new leader lets the page go in other pieces, no part may overwrite one that holds
    more, nor be the tombstone of one that nobody let go.
    """
    address = recipient_address(campaign_id, page, min(slots, default=0))
    named = f".{_short(','.join(map(str, slots)))[:8]}" if slots else ""
    return f"{campaign_key(tenant, campaign_id)}:{address.row}/p{address.slot}{named}#{hop}"


def held_delivery_id(tenant: str, user_id: str, address: Address, suffix: str, hop: int) -> str:
    """Hold id of one delivery. suffix: as `delivery_suffix` gives it."""
    return f"{user_key(tenant, user_id)}:{address.row}/d{address.slot}.{suffix}#{hop}"


def digest_group(tenant: str, user_id: str, template: str, channel: str, priority: str) -> bytes:
    """Stands for the messages to one user that go out as one."""
    named = f"{user_key(tenant, user_id)}\n{template}\n{channel}\n{priority}"
    return hashlib.blake2b(named.encode(), digest_size=12).digest()


def digest_event(hold_ids: Iterable[bytes]) -> str:
    """The event id of the digest that is made of these."""
    return "digest/" + hashlib.blake2b(b"\n".join(sorted(hold_ids)), digest_size=16).hexdigest()


def progress_key(tenant: str, campaign_id: str, partition: int) -> str:
    """Record key of `campaign.progress`."""
    return f"{campaign_key(tenant, campaign_id)}:{partition}"


def notification_key(tenant: str, notification_id: str) -> str:
    """Record key of `notification.control`."""
    return f"{encoded(tenant)}/{notification_id}"


def facet_key(tenant: str, user_id: str, facet: str) -> str:
    """Record key on `recipients`; facet is "user", "device/<id>", "optout/<channel>/<kind>" or "erased"."""
    return f"{user_key(tenant, user_id)}/{facet}"


def device_facet(device_id: str) -> str:
    return f"device/{encoded(device_id)}"


def opt_out_facet(channel: str, kind: str) -> str:
    return f"optout/{encoded(channel) if channel != '*' else '*'}/{encoded(kind) if kind != '*' else '*'}"


def address_hash(channel: str, address: str) -> str:
    """Stands for a normalised address in suppressions; the address itself is never stored there.

    The case of an email address is ignored: nobody has two people behind one spelling.
    """
    if channel == Channel.EMAIL:
        address = address.lower()
    return hashlib.sha256(f"{channel}\n{address}".encode()).hexdigest()[:32]


def suppression_key(tenant: str, channel: str, hashed: str) -> str:
    """Record key on `suppressions`."""
    return f"{encoded(tenant)}/{channel}:{hashed}"


def inbox_key(tenant: str, user_id: str, notification_id: str) -> str:
    """Record key on `inbox`."""
    return f"{user_key(tenant, user_id)}:{notification_id}"


def suppression_of_key(key: bytes | None) -> tuple[str, str, str]:
    """(tenant, channel, address hash) of a record key of `suppressions`. Raises ValueError for anything else."""
    tenant, rest = (key or b"").decode().split("/")
    channel, hashed = rest.split(":")
    return unquote(tenant), channel, hashed


def inbox_of_key(key: bytes | None) -> tuple[str, str, str]:
    """(tenant, user id, notification id) of a record key of `inbox`. Raises ValueError for anything else."""
    user, notification_id = (key or b"").decode().split(":")
    tenant, user_id = user.split("/")
    return unquote(tenant), unquote(user_id), notification_id


# Redis. The part in braces is the hash tag: everything one script touches shares one.


def redis_profile(tenant: str, user_id: str) -> str:
    """Hash: one field per facet, `v` = version."""
    return f"p:{{{user_key(tenant, user_id)}}}"


def redis_claim(tenant: str, user_id: str, key: str) -> bytes:
    """Claim entry of a delivery key (16-byte hash)."""
    return f"c:{{{user_key(tenant, user_id)}}}:".encode() + hashlib.blake2b(key.encode(), digest_size=16).digest()


def redis_send(tenant: str, user_id: str, intent: str, key: str) -> tuple[bytes, str, str, str]:
    """(claim, profile, cancel, timeline) of one send, as the functions of these names give them, at half the price."""
    tag = f"{{{user_key(tenant, user_id)}}}"
    claim = f"c:{tag}:".encode() + hashlib.blake2b(key.encode(), digest_size=16).digest()
    return claim, f"p:{tag}", f"cancel:{tag}:{_short(intent)}", f"tl:{tag}"


def redis_plan(tenant: str, user_id: str, intent: str) -> str:
    """First-wins plan of an intent."""
    return f"plan:{{{user_key(tenant, user_id)}}}:{_short(intent)}"


def redis_fallback(tenant: str, user_id: str, intent: str, channel: str) -> str:
    """What is known of an intent's fallback to a channel."""
    return f"fb:{{{user_key(tenant, user_id)}}}:{_short(intent)}:{channel}"


def redis_cancel(tenant: str, user_id: str, intent: str) -> str:
    """Set when the intent was cancelled."""
    return f"cancel:{{{user_key(tenant, user_id)}}}:{_short(intent)}"


def redis_digest(tenant: str, user_id: str, intent: str, channel: str) -> str:
    """In which digest this notification went out on this channel, or that it went out as itself (IN_NO_DIGEST)."""
    return f"dg:{{{user_key(tenant, user_id)}}}:{_short(f'{intent}:{channel}')}"


def redis_cap(tenant: str, user_id: str, kind: str, date: str) -> str:
    """Sorted set: what a user got of this kind on this local date ("YYYY-MM-DD")."""
    return f"cap:{{{user_key(tenant, user_id)}}}:{date}:{kind}"


def redis_lookalike(tenant: str, user_id: str, content: str) -> bytes:
    """Mark of the last message of this content (8-byte hash). Written with every send, hence short."""
    return f"l:{{{user_key(tenant, user_id)}}}:".encode() + _content_hash(content)


def redis_suppression(tenant: str, channel: str, hashed: str) -> str:
    return f"sup:{{{encoded(tenant)}/{channel}:{hashed}}}"


def redis_soft_bounce(tenant: str, channel: str, hashed: str) -> str:
    """Delivery key of the first message that was refused at this address, which may be right all the same."""
    return f"soft:{{{encoded(tenant)}/{channel}:{hashed}}}"


def redis_idempotency(tenant: str, event_id: str) -> str:
    """Answer or running lock of an Idempotency-Key."""
    return f"idem:{{{encoded(tenant)}/{_short(event_id)}}}"


def redis_timeline(tenant: str, user_id: str) -> str:
    """A user's last notifications, newest first."""
    return f"tl:{{{user_key(tenant, user_id)}}}"


def redis_inbox(tenant: str, user_id: str) -> str:
    """Hash: notification id -> message, `seq` = the last sequence number given."""
    return f"in:{{{user_key(tenant, user_id)}}}"


def redis_inbox_order(tenant: str, user_id: str) -> str:
    """Sorted set: notification id by its time."""
    return f"in:{{{user_key(tenant, user_id)}}}:order"


def redis_inbox_unread(tenant: str, user_id: str) -> str:
    """Set: the notification ids not read yet; its size is the unread count."""
    return f"in:{{{user_key(tenant, user_id)}}}:unread"


def redis_inbox_live(tenant: str, user_id: str) -> str:
    """Pub/sub channel of a user's inbox."""
    return f"in:{{{user_key(tenant, user_id)}}}:live"


def redis_message(provider: str, message_id: str) -> str:
    """Reference of a call by the provider's own message id, for providers that cannot carry ours."""
    return f"pm:{{{encoded(provider)}/{_short(message_id)}}}"


def redis_bucket(provider: str) -> str:
    """Shared token buckets of a provider (all, and bulk)."""
    return f"rate:{{{encoded(provider)}}}"


def redis_throttles(provider: str) -> str:
    """Hash: whom or what a provider wants to be left alone with -> until when."""
    return f"throttles:{{{encoded(provider)}}}"


def redis_breaker(provider: str) -> str:
    return f"breaker:{{{encoded(provider)}}}"


def redis_share(provider: str, channel: str, span: str, number: int) -> str:
    """Hash: of the calls of an hour ("h") or a day ("d") since 1970, by minute or hour: `<time>s` sent, `<time>d` of
    those delivered within ten minutes.
    """
    return f"share:{{{encoded(provider)}/{encoded(channel)}}}:{span}{number}"


def redis_share_alarm(provider: str, channel: str) -> str:
    """There while the provider delivers less than it usually does."""
    return f"share:{{{encoded(provider)}/{encoded(channel)}}}:alarm"


def redis_progress(lane: str) -> str:
    """Per lane: partition -> {low watermark, done above it}, written by workers every 250 ms."""
    return f"progress:{{{lane}}}"


def redis_spend(tenant: str, channel: str, day: str) -> str:
    """Account of a tenant's money for a channel on a day of its own: a hash."""
    return f"{{spend:{encoded(tenant)}:{channel}:{day}}}"


def redis_grant(lane: str, tenant: str) -> str:
    return f"grant:{{{lane}}}:{encoded(tenant)}"


def redis_fanned(tenant: str, campaign_id: str, page: int, hop: int, first_slot: int) -> str:
    """One for each released page, or piece of one: set once its deliveries reach the lanes, and gone soon after."""
    return f"fanned:{{{campaign_key(tenant, campaign_id)}}}:{page}.{hop}.{first_slot}"


def redis_owner(group: str, partition: int) -> str:
    """URL of the status process that owns a partition; expires after 3 s."""
    return f"owner:status:{{{group}}}:{partition}"


IN_NO_DIGEST = b"alone"
"""Found under `redis_digest`."""
REDIS_EPOCH = "epoch"
"""Holds the Redis run_id for which the rebuild from the log is complete."""
REDIS_REBUILD = "rebuild:{epoch}"
"""Held by the process that rebuilds Redis; gone when Redis is emptied meanwhile."""
REDIS_APPLIED = "applied:{epoch}"
"""Hash: topic and partition -> offset up to which the log had been applied when this Redis was last saved."""
REDIS_BY_OFFSET = ("p:", "sup:", "in:")
"""How keys begin whose content was stored by log offsets or comes back from the log: worthless beside another log."""


@lru_cache(REMEMBERED_USERS)
def _content_hash(content: str) -> bytes:
    return hashlib.blake2b(content.encode(), digest_size=8).digest()


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _base32(raw: bytes) -> str:
    """Lower case and without padding. A sixth of the price of base64.b32encode: every send makes two."""
    letters, spare = divmod(len(raw) * 8 + 4, 5)
    spread = int.from_bytes(raw, "big") << (4 - spare)
    for low, high, shift in _spreading(1 << (letters - 1).bit_length()):
        spread = spread & low | (spread & high) << shift
    return spread.to_bytes(letters, "big").translate(_BASE32_LETTERS).decode()


@lru_cache
def _spreading(letters: int) -> list[tuple[int, int, int]]:
    """How the bits of so many letters (a power of two), five for each, come to lie in a byte for each.

    In each step the upper half of every field moves away from the lower one: (mask of the lower halves, mask of the
    upper halves, by how many bits those move).
    """
    steps, half = [], letters // 2
    while half:
        starts = range(0, letters * 8, half * 16)
        low = sum(((1 << half * 5) - 1) << start for start in starts)
        steps.append((low, low << half * 5, half * 3))
        half //= 2
    return steps


_BASE32_LETTERS = b"abcdefghijklmnopqrstuvwxyz234567".ljust(256)


def _from_base32(text: str) -> bytes | None:
    """What _base32 made this text of; None for any other spelling. A tenth of the price of base64.b32decode."""
    if not _BASE32.fullmatch(text):
        return None
    bits = len(text) * 5
    spare = bits % 8
    number = int(text.encode().translate(_BASE32_DIGITS), 32)
    if spare >= 5 or number & ((1 << spare) - 1):
        return None
    return (number >> spare).to_bytes(bits // 8, "big")


def _split_mac(text: str, mac_bytes: int) -> tuple[bytes, bytes] | None:
    raw = _from_base32(text)
    if raw is None or len(raw) <= mac_bytes:
        return None
    return raw[:-mac_bytes], raw[-mac_bytes:]


def _packed_address(address: Address) -> bytes:
    return f"{address.row[2:]}.{address.slot}".encode()


def _unpacked_address(kind: str, body: bytes) -> Address | None:
    parts = body.decode("utf-8", "replace").split(".")
    if kind not in "nc" or len(parts) != {"n": 4, "c": 3}[kind]:
        return None
    return Address(".".join([kind, *parts[:-1]]), int(parts[-1]))
