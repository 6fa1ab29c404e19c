"""The ledger is the judge: it must count every call and every repeat, and forget only when told to."""

from __future__ import annotations

import tracemalloc

from deploy.simulators.ledger import Ledger, short_hash

ANNA, BEN = short_hash("+491"), short_hash("+492")


def test_a_second_send_of_a_key_is_a_repeat_and_a_refused_call_is_not() -> None:
    service = Ledger().service("/send")
    assert [service.begin(1, 10.0), service.begin(1, 10.5), service.begin(2, 11.2)] == [1, 2, 1]
    service.sent(1, ANNA)
    service.sent(1, ANNA)
    service.sent(2, BEN)
    service.begin(3, 11.9)
    for answer in ("202", "202", "202", "500"):
        service.end(answer)
    summary = service.summary()
    told = ("calls", "sends", "distinct_keys", "distinct_recipients", "repeats", "in_flight", "max_in_flight")
    assert [summary[word] for word in told] == [4, 3, 2, 2, 1, 0, 4]
    assert summary["per_second"] == {"10": 2, "11": 2}
    assert summary["answers"] == {"202": 3, "500": 1}
    assert service.of(1) == {"calls": 2, "sends": 2}


def test_totals_are_the_sum_of_all_services_and_reset_forgets() -> None:
    ledger = Ledger()
    for name in ("/send", "smtp"):
        ledger.service(name).begin(1, 0.0)
        ledger.service(name).sent(1, ANNA)
    assert ledger.summary()["sends"] == 2
    ledger.reset()
    assert ledger.summary()["services"] == {}


def test_the_most_in_a_second_is_found_wherever_that_second_begins() -> None:
    service = Ledger().service("/send")
    for key, at_s in enumerate((0.0, 0.9, 1.1, 1.5, 1.8, 3.0)):
        service.begin(key, at_s)
    assert service.summary()["most_in_a_second"] == 4


def test_a_million_keys_fit() -> None:
    """200 MB, keys and recipients together."""
    count = 100_000
    tracemalloc.start()
    service = Ledger().service("/send")
    for number in range(count):
        key = short_hash(f"default/campaign/user-{number}")
        service.begin(key, number / 2_000)
        service.sent(key, short_hash(f"token-{number}"))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert service.summary()["distinct_recipients"] == count
    assert held / count < 200
