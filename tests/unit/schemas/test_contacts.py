from schemas import contacts
from schemas.messages import Channel, Contact, Device
from schemas.stores import Profile

PHONE = Device("phone", "token-1", "ios")
TABLET = Device("tablet", "token-2", "android")
PROFILE = Profile(1, email="a@example.org", phone="+491701234567", locale="de", devices=(PHONE, TABLET))


def test_without_to_the_stored_profile_is_used() -> None:
    contact = contacts.effective(PROFILE, None)
    assert (contact.email, contact.phone, contact.locale) == ("a@example.org", "+491701234567", "de")


def test_a_field_of_to_replaces_only_its_own_counterpart() -> None:
    contact = contacts.effective(PROFILE, Contact(email="b@example.org", time_zone="Europe/Vienna"))
    assert contact == Contact("b@example.org", "+491701234567", (PHONE, TABLET), "de", "Europe/Vienna")


def test_devices_of_to_replace_all_stored_devices() -> None:
    other = Device("other", "token-3", "web")
    assert contacts.effective(PROFILE, Contact(devices=(other,))).devices == (other,)


def test_each_channel_has_its_own_address() -> None:
    contact = contacts.effective(PROFILE, None)
    assert contacts.address_of(contact, Channel.PUSH, "tablet", "42") == "token-2"
    assert contacts.address_of(contact, Channel.EMAIL, "", "42") == "a@example.org"
    assert contacts.address_of(contact, Channel.SMS, "", "42") == "+491701234567"
    assert contacts.address_of(contact, Channel.INAPP, "", "42") == "42"


def test_a_device_that_is_gone_has_no_address() -> None:
    assert contacts.address_of(contacts.effective(PROFILE, None), Channel.PUSH, "lost", "42") == ""
