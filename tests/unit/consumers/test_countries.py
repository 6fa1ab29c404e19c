"""What an SMS costs depends on the country, so the quick way to it must be right."""

from __future__ import annotations

import phonenumbers
import pytest
from phonenumbers import PhoneNumberFormat, PhoneNumberType

from consumers import countries

TYPES = (PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE)


@pytest.mark.parametrize("region", sorted(countries.KNOWN))
def test_every_countrys_numbers_are_known_as_its_own(region: str) -> None:
    for kind in TYPES:
        example = phonenumbers.example_number_for_type(region, kind)
        if example is not None:
            number = phonenumbers.format_number(example, PhoneNumberFormat.E164)
            assert countries.country(number) == phonenumbers.region_code_for_number(example), number


@pytest.mark.parametrize(
    ("number", "country"),
    [
        ("+491701234567", "DE"),
        ("+12025550123", "US"),
        ("+14165550123", "CA"),
        ("+18765550123", "JM"),
        ("+447400123456", "GB"),
        ("+447781123456", "GG"),
        ("+77012345678", "KZ"),
        ("+79161234567", "RU"),
    ],
)
def test_countries_that_share_a_calling_code_are_told_apart(number: str, country: str) -> None:
    assert countries.country(number) == country


def test_a_number_outside_of_every_plan_is_the_largest_countrys() -> None:
    assert countries.country("+10000000000") == "US"


@pytest.mark.parametrize("number", ["", "+", "+999123456789", "+80012345678", "+x", "token-1", "+9"])
def test_what_no_country_has_has_none(number: str) -> None:
    """Neither do satellites and free numbers of no country."""
    assert countries.country(number) == ""
