"""Where a person can be reached: the stored profile, overridden by the request's own `to`.

Planning (across) and the senders (out) must agree on it, so the rule lives here, beside the messages it reads.
"""

from __future__ import annotations

from schemas import stores
from schemas.messages import Channel, Contact, Device

Reach = Contact | stores.Profile
"""Both name their addresses alike, so that a profile need not be copied for each send."""


def effective(profile: stores.Profile, to: Contact | None) -> Reach:
    """The addresses to use: each field of `to` that is not empty replaces the profile's."""
    if to is None:
        return profile
    return Contact(
        to.email or profile.email,
        to.phone or profile.phone,
        to.devices or profile.devices,
        to.locale or profile.locale,
        to.time_zone or profile.time_zone,
    )


def device(contact: Reach, device_id: str) -> Device | None:
    """The device with this id; None when the person has it no longer."""
    for one in contact.devices:
        if one.id == device_id:
            return one
    return None


def address_of(contact: Reach, channel: Channel, device_id: str, user_id: str) -> str:
    """What the provider addresses: device token, email, phone number, or the user for inapp; "" when there is none."""
    match channel:
        case Channel.PUSH:
            found = device(contact, device_id)
            return found.token if found else ""
        case Channel.EMAIL:
            return contact.email
        case Channel.SMS:
            return contact.phone
        case Channel.INAPP:
            return user_id
