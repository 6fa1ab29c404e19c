"""Money in the settings: a budget that cannot be kept, or a price that is missing, is refused before a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.spend import Budget
from deploy import budgets, settings
from deploy.settings import Settings
from schemas.errors import Misconfigured
from schemas.messages import Channel

GIVEN = """\
[channels.sms]
providers = ["texter", "spare"]
[channels.email]
providers = ["mail"]
[providers.texter]
kind = "http"
url = "http://127.0.0.1:9000/sms"
rate_per_s = 100
burst = 20
prices = { DE = 0.07, CH = 0.075, default = 0.05 }
[providers.spare]
kind = "http"
url = "http://127.0.0.1:9001/sms"
rate_per_s = 100
burst = 20
prices = { default = 1 }
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:2525"
from = "Shop <news@example.org>"
rate_per_s = 2000
burst = 200
[tenants.default]
time_zone = "Europe/Berlin"
budget_per_day = { sms = 250.0, push = 3 }
[tenants.other]
"""


def load(tmp_path: Path, old: str = "", new: str = "") -> Settings:
    assert old in GIVEN
    file = tmp_path / "tidings.toml"
    file.write_text(GIVEN.replace(old, new, 1))
    return settings.load(file, {})


def test_prices_and_budgets_are_whole_micro_units(tmp_path: Path) -> None:
    read = load(tmp_path)
    prices = budgets.prices_of(read.providers["texter"])
    assert (prices.by_country, prices.default) == ({"DE": 70_000, "CH": 75_000}, 50_000)
    found = list(budgets.budgets_of(read.tenants, Channel.SMS))
    assert found == [Budget("default", Channel.SMS, 250_000_000, "Europe/Berlin")]
    assert list(budgets.budgets_of(read.tenants, Channel.EMAIL)) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            ", default = 0.05",
            "",
            "tidings.toml:10: providers.texter.prices: tenants.default.budget_per_day.sms needs a",
        ),
        (", default = 0.05", "", "price for every country; add default = 0.05"),
        (
            "prices = { default = 1 }",
            "",
            "tidings.toml:25: tenants.default.budget_per_day.sms: its provider spare has no",
        ),
        ("prices = { default = 1 }", "", "write prices = { default = 0.05 } under [providers.spare]"),
        ("sms = 250.0", "email = 5", "tenants.default.budget_per_day.email: its provider mail has no prices"),
        ("sms = 250.0", "inapp = 5", "budget_per_day.inapp: the inbox costs nothing; leave it out"),
        ("sms = 250.0", "sms = 0", "tenants.default.budget_per_day.sms: Input should be greater than 0"),
        ("sms = 250.0", "sms = -1", "tenants.default.budget_per_day.sms: Input should be greater than 0"),
        ("sms = 250.0", "sms = inf", "tenants.default.budget_per_day.sms: Input should be a finite number"),
        ("sms = 250.0", "fax = 1", "tenants.default.budget_per_day.fax: Input should be 'push', 'email', 'sms' or"),
        ("sms = 250.0", "sms = 0.5", "budget_per_day.sms: 0.5 pays for no message of spare, not even the cheapest"),
        ("DE = 0.07", "de = 0.07", "tidings.toml:10: providers.texter.prices.de: is no country; write the two capital"),
        ("DE = 0.07", "DE = -0.07", "tidings.toml:10: providers.texter.prices.DE: Input should be greater than or"),
        ("DE = 0.07", "DE = 0.0712345", "providers.texter.prices.DE: Decimal input should have no more than 6"),
        ("DE = 0.07", 'DE = "dear"', "providers.texter.prices.DE: Input should be a valid decimal"),
    ],
)
def test_wrong_money_is_refused_with_what_to_write_instead(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        load(tmp_path, old, new)
    assert told in str(refused.value)


def test_a_budget_for_a_channel_that_nothing_is_sent_on_harms_nobody(tmp_path: Path) -> None:
    assert load(tmp_path).tenants["default"].budget_per_day["push"] == 3
