"""Accounts of money in memory: the script of `consumers/spend.py` and the commands beside it, a second time, in Python.

`tests/contract/test_spend_draw.py` holds the script against it on random histories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from schemas.errors import StoreDown
from schemas.trips import Script, Trip


class MemoryMoney:
    """down: nothing is done and nobody is answered; deaf: the next trip is made, and its answer lost.

    made: round trips so far. before_answer: called once, between what the next trip does and its answer.
    """

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, int]] = defaultdict(dict)
        self.down = False
        self.deaf = False
        self.made = 0
        self.before_answer: Any = None

    def begin(self) -> Trip:
        return MemoryMoneyTrip(self)

    def draw(self, key: str, *amounts: int) -> list[int]:
        budget, wanted, least, seen_drawn, seen_returned, returned, _ = amounts
        account = self.accounts[key]
        drawn = max(account.get("d", 0), seen_drawn)
        given_back = max(account.get("r", 0), seen_returned) + returned
        left = budget - drawn + given_back
        grant = min(wanted, max(least, left // 8)) if wanted > 0 and left >= least else 0
        account |= {"d": drawn + grant, "r": given_back}
        return [grant, drawn + grant, given_back]

    def reply(self, name: str, key: str, *words: Any) -> Any:
        account = self.accounts[key]
        match name, words:
            case "HINCRBY", (field, by):
                account[field] = account.get(field, 0) + by
                return account[field]
            case "HSETNX", (field, value):
                is_new = field not in account
                account.setdefault(field, value)
                return int(is_new)
            case "HMGET", fields:
                return [account.get(field) for field in fields]
        assert name == "PEXPIRE", name
        return 1


class MemoryMoneyTrip:
    def __init__(self, money: MemoryMoney) -> None:
        self._money = money
        self._asked: list[tuple[Any, ...]] = []

    def execute_command(self, *args: Any) -> None:
        self._asked.append((self._money.reply, *args))

    def run(self, script: Script, touched: Sequence[Any], *args: Any) -> None:
        self._asked.append((self._money.draw, *touched, *args))

    async def execute(self) -> list[Any]:
        money = self._money
        if money.down:
            raise StoreDown("the accounts are told to be away")
        money.made += 1
        replies = [call(*args) for call, *args in self._asked]
        if money.deaf:
            money.deaf = False
            raise StoreDown("the answer was lost")
        if money.before_answer is not None:
            do, money.before_answer = money.before_answer, None
            do()
        return replies
