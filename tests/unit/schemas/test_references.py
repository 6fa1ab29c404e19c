"""What providers carry back names exactly one call, and nobody but us can make one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import keys
from schemas.keys import Address, Ids, Reference

IDS = Ids(b"secret")
numbers = st.integers(0, 10_000)
references = st.builds(
    Reference,
    tenant=st.sampled_from(["default", "shop-2"]),
    address=st.builds(Address, st.sampled_from(["n.0a1b2c3d.3.77", "c.spring%2E26.9"]), numbers),
    index=numbers,
    generation=numbers,
    call=numbers,
    channel=st.sampled_from(["", "email", "sms"]),
    address_hash=st.sampled_from(["", keys.address_hash("email", "a@example.org")]),
)


@given(references)
def test_a_reference_comes_back_whole(reference: Reference) -> None:
    assert IDS.read_reference(IDS.reference(reference)) == reference


@given(references, st.integers(0, 300), st.sampled_from("abcdefgh234567"))
def test_a_changed_reference_is_not_ours(reference: Reference, at: int, letter: str) -> None:
    text = IDS.reference(reference)
    at %= len(text)
    changed = text[:at] + letter + text[at + 1 :]
    assert changed == text or IDS.read_reference(changed) is None


@given(references)
def test_another_deployments_reference_is_not_ours(reference: Reference) -> None:
    assert IDS.read_reference(Ids(b"another secret").reference(reference)) is None


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    assert IDS.read_reference(text) is None


def test_the_same_mailbox_has_one_hash_however_it_is_written_and_another_on_another_channel() -> None:
    hashed = keys.address_hash("email", "Jane@Example.org")
    assert hashed == keys.address_hash("email", "jane@example.org")
    assert hashed != keys.address_hash("sms", "jane@example.org")
