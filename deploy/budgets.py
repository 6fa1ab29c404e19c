"""Money in the settings: what a provider's prices and a tenant's budgets come to, and what of them does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from consumers import countries
from consumers.prices import MICROS, Prices
from consumers.spend import Budget
from deploy import sections
from schemas.messages import Channel

DEFAULT = "default"
Misfit = tuple[tuple[str, ...], str]
"""Path of a setting, and what is wrong with it."""


def prices_of(provider: sections.Provider) -> Prices:
    """Of a provider that has some, with a default among them."""
    micros = {country: _micros(price) for country, price in provider.prices.items()}
    return Prices({country: price for country, price in micros.items() if country != DEFAULT}, micros[DEFAULT])


def budgets_of(tenants: Mapping[str, sections.Tenant], channel: Channel) -> Iterator[Budget]:
    """Of every tenant that has one for this channel."""
    for name, tenant in tenants.items():
        for budgeted, per_day in tenant.budget_per_day.items():
            if budgeted == channel.value:
                yield Budget(name, channel, _micros(per_day), tenant.time_zone)


def misfits(
    channels: Mapping[sections.ChannelName, sections.Channel],
    providers: Mapping[str, sections.Provider],
    tenants: Mapping[str, sections.Tenant],
) -> Iterator[Misfit]:
    """What would be charged wrongly, or not at all."""
    for name, provider in providers.items():
        yield from _wrong_countries(name, provider)
    for tenant, given in tenants.items():
        for channel, per_day in given.budget_per_day.items():
            path, used = ("tenants", tenant, "budget_per_day"), channels.get(channel, sections.Channel())
            if channel == Channel.INAPP.value:
                yield path, f"{'.'.join(path)}.{channel}: the inbox costs nothing; leave it out"
            for name in used.providers:
                if name in providers:
                    yield from _unpriced(path, channel, per_day, name, providers[name].prices)


def _wrong_countries(name: str, provider: sections.Provider) -> Iterator[Misfit]:
    for country in provider.prices:
        if country != DEFAULT and country not in countries.KNOWN:
            text = "is no country; write the two capital letters of ISO 3166, like DE, or default"
            yield ("providers", name, "prices"), f"providers.{name}.prices.{country}: {text}"


def _unpriced(
    path: Sequence[str], channel: str, per_day: Decimal, name: str, prices: Mapping[str, Decimal]
) -> Iterator[Misfit]:
    budget = f"{'.'.join(path)}.{channel}"
    if not prices:
        text = f"its provider {name} has no prices; write prices = {{ {DEFAULT} = 0.05 }} under [providers.{name}]"
        yield tuple(path), f"{budget}: {text}"
    elif DEFAULT not in prices:
        text = f"{budget} needs a price for every country; add {DEFAULT} = 0.05, or what the dearest costs"
        yield ("providers", name, "prices"), f"providers.{name}.prices: {text}"
    elif min(prices.values()) > per_day:
        yield tuple(path), f"{budget}: {per_day} pays for no message of {name}, not even the cheapest; write more"


def _micros(money: Decimal) -> int:
    """Exact: settings have at most six decimals."""
    return int(money * MICROS)
