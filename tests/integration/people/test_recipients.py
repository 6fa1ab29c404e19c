"""What is stored of a person never goes back, whoever writes it, however often and in whatever order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from deploy.redis_trips import RedisTrips
from schemas import facets, keys
from schemas.errors import StoreDown
from schemas.messages import Device, FacetKind, RecipientFacet
from schemas.stores import FacetWrite, Profile
from schemas.trips import Epoch, Trip, trusted
from streams import recipients
from streams.recipients import RedisProfiles, RedisSuppressions
from tests.integration.people.commands import run

PHONE = Device("phone", "token-1", "ios", "shop", "production", 10)
TABLET = Device("tab/let", "token-2", "android", "shop", "sandbox", 20)


class Person:
    """One user of the store, written to by offset."""

    def __init__(self, profiles: RedisProfiles, tenant: str) -> None:
        self._profiles = profiles
        self._tenant = tenant

    async def write(self, offset: int, facet: RecipientFacet) -> tuple[str, ...]:
        return await self._profiles.apply(self._tenant, "user 1", [FacetWrite(facets.name_of(facet), offset, facet)])

    async def remove(self, offset: int, name: str) -> None:
        await self._profiles.apply(self._tenant, "user 1", [FacetWrite(name, offset, None)])

    async def now(self) -> Profile:
        return await self._profiles.load(self._tenant, "user 1")

    def user(self, email: str) -> RecipientFacet:
        return RecipientFacet(
            self._tenant, "user 1", FacetKind.USER, 1, email, "+491701234567", "de-AT", "Europe/Vienna"
        )

    def device(self, device: Device) -> RecipientFacet:
        return RecipientFacet(self._tenant, "user 1", FacetKind.DEVICE, 1, device=device)

    def opt_out(self, channel: str, kind: str) -> RecipientFacet:
        return RecipientFacet(self._tenant, "user 1", FacetKind.OPT_OUT, 1, channel=channel, kind=kind)

    def erased(self) -> RecipientFacet:
        return RecipientFacet(self._tenant, "user 1", FacetKind.ERASED, 1000)


@pytest.fixture
def person(redis: Redis, epoch: Epoch, tenant: str) -> Person:
    return Person(RedisProfiles(RedisTrips(redis, "people"), epoch), tenant)


async def test_a_stored_person_is_read_back_whole_with_the_newest_device_first(person: Person) -> None:
    await person.write(1, person.user("a@example.org"))
    await person.write(2, person.device(PHONE))
    await person.write(3, person.device(TABLET))
    await person.write(4, person.opt_out("push", "news/letter"))
    await person.write(5, person.opt_out("*", "*"))
    assert await person.now() == Profile(
        version=5,
        email="a@example.org",
        phone="+491701234567",
        locale="de-AT",
        time_zone="Europe/Vienna",
        devices=(TABLET, PHONE),
        opt_outs=frozenset({("push", "news/letter"), ("*", "*")}),
    )


async def test_an_older_write_never_replaces_a_newer_one(person: Person) -> None:
    await person.write(7, person.user("new@example.org"))
    await person.write(6, person.user("old@example.org"))
    assert (await person.now()).email == "new@example.org"


async def test_a_repeated_write_changes_nothing_not_even_the_version(person: Person) -> None:
    await person.write(7, person.user("a@example.org"))
    before = await person.now()
    await person.write(7, person.user("a@example.org"))
    assert await person.now() == before


async def test_a_removed_device_is_not_brought_back_by_its_older_registration(person: Person) -> None:
    await person.write(2, person.device(PHONE))
    await person.remove(5, keys.device_facet("phone"))
    await person.write(4, person.device(PHONE))
    assert (await person.now()).devices == ()


async def test_what_every_send_reads_of_somebody_does_not_grow_with_each_phone_they_once_had(
    person: Person, redis: Redis, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await person.write(2 * number, person.device(replace(PHONE, id=f"phone-{number}")))
        await person.remove(2 * number + 1, keys.device_facet(f"phone-{number}"))
    await person.remove(10, keys.opt_out_facet("email", "news"))
    monkeypatch.setattr(recipients, "MARK_KEPT_S", -1)  # a week later
    await person.write(11, person.device(PHONE))
    stored = await run(redis, "HGETALL", keys.redis_profile(tenant, "user 1"))
    assert set(stored) == {b"v", b"device/phone"}
    now = await person.now()
    assert (now.version, now.devices) == (12, (PHONE,))


async def test_a_profile_write_after_an_opt_out_does_not_undo_it(person: Person) -> None:
    await person.write(1, person.opt_out("email", "news"))
    await person.write(2, person.user("a@example.org"))
    assert (await person.now()).opted_out("email", "news", "marketing")


async def test_every_effective_change_raises_the_version_that_senders_compare(person: Person) -> None:
    await person.write(1, person.user("a@example.org"))
    await person.write(2, person.opt_out("email", "*"))
    await person.remove(3, keys.opt_out_facet("email", "*"))
    assert (await person.now()).version == 3


async def test_erasure_removes_profile_devices_inbox_and_timeline_and_blocks_sends_at_once(
    person: Person, redis: Redis, tenant: str
) -> None:
    await person.write(1, person.user("a@example.org"))
    await person.write(2, person.device(PHONE))
    await person.write(3, person.opt_out("email", "*"))
    await run(redis, "LPUSH", keys.redis_timeline(tenant, "user 1"), b"x")
    await run(redis, "HSET", keys.redis_inbox(tenant, "user 1"), "n1", "x")
    removed = await person.write(4, person.erased())
    after = await person.now()
    assert after.erased
    assert (after.email, after.devices) == ("", ())
    assert after.opted_out("email", "x", "marketing")
    assert set(removed) == {"user", "device/phone"}
    assert await redis.exists(keys.redis_timeline(tenant, "user 1"), keys.redis_inbox(tenant, "user 1")) == 0
    stored = await run(redis, "HGETALL", keys.redis_profile(tenant, "user 1"))
    assert b"example.org" not in b"".join(stored.values())


async def test_nothing_written_before_an_erasure_comes_back_after_it(person: Person) -> None:
    await person.write(10, person.erased())
    await person.write(9, person.user("a@example.org"))
    await person.write(8, person.device(PHONE))
    assert (await person.now()).erased
    assert (await person.now()).devices == ()
    assert await person.write(10, person.erased()) == ()


async def test_a_person_who_registers_again_after_an_erasure_can_be_reached(person: Person) -> None:
    await person.write(10, person.erased())
    await person.write(11, person.device(PHONE))
    assert (await person.now()).erased
    await person.write(12, person.user("a@example.org"))
    assert not (await person.now()).erased


async def test_all_orders_of_the_same_writes_end_in_the_same_person(redis: Redis, epoch: Epoch, tenant: str) -> None:
    results = set()
    for number, order in enumerate(itertools.permutations(range(5))):
        person = Person(RedisProfiles(RedisTrips(redis, "people"), epoch), f"{tenant}-{number}")
        writes = {
            0: person.write(1, person.user("a@example.org")),
            1: person.write(2, person.device(PHONE)),
            2: person.write(3, person.erased()),
            3: person.write(4, person.opt_out("sms", "*")),
            4: person.write(5, person.device(TABLET)),
        }
        for step in order:
            await writes[step]
        now = await person.now()
        results.add((now.erased, now.email, now.devices, now.opt_outs))
    assert results == {(True, "", (TABLET,), frozenset({("sms", "*")}))}


async def test_an_emptied_redis_is_trusted_by_nobody(person: Person, redis: Redis) -> None:
    await person.write(1, person.opt_out("email", "*"))
    await redis.delete(keys.REDIS_EPOCH)
    with pytest.raises(StoreDown):
        await person.now()


async def test_a_redis_rebuilt_for_another_server_is_trusted_by_nobody(person: Person, redis: Redis) -> None:
    await redis.set(keys.REDIS_EPOCH, "another run")
    with pytest.raises(StoreDown):
        await person.now()


async def test_a_client_that_had_to_reconnect_knows_which_server_it_reached(
    person: Person, redis: Redis, epoch: Epoch
) -> None:
    run_id, epoch.run_id = epoch.run_id, b"the server before"
    with pytest.raises(StoreDown):
        await person.now()
    await redis.connection_pool.disconnect()
    assert (await person.now()).version == 0
    assert epoch.run_id == run_id


async def test_a_suppressed_address_stays_so_until_a_later_lift(redis: Redis, epoch: Epoch, tenant: str) -> None:
    store = RedisSuppressions(RedisTrips(redis, "people"), epoch)
    hashed = keys.address_hash("email", "Jane@example.org")
    await store.apply(tenant, "email", hashed, 5, "bounced")
    await store.apply(tenant, "email", hashed, 4, "")
    assert await store.load(tenant, "email", keys.address_hash("email", "jane@example.org")) == "bounced"
    await store.apply(tenant, "email", hashed, 6, "")
    await store.apply(tenant, "email", hashed, 5, "bounced")
    assert await store.load(tenant, "email", hashed) == ""
    assert await redis.ttl(keys.redis_suppression(tenant, "email", hashed)) > 0


async def test_profile_and_suppression_share_one_round_trip(
    redis: Redis, epoch: Epoch, tenant: str, person: Person
) -> None:
    trips = RedisTrips(redis, "people")
    profiles, suppressions = RedisProfiles(trips, epoch), RedisSuppressions(trips, epoch)
    await person.write(1, person.user("a@example.org"))
    await suppressions.apply(tenant, "email", keys.address_hash("email", "a@example.org"), 1, "complained")

    def ask(trip: Trip) -> None:
        profiles.ask(trip, tenant, "user 1")
        suppressions.ask(trip, tenant, "email", "a@example.org")

    profile, suppression = await trusted(trips, epoch, ask)
    assert profiles.read(profile).email == "a@example.org"
    assert suppressions.read(suppression) == "complained"
    assert profiles.read({}) == Profile()
