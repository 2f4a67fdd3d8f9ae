"""Bank accounts, transfers and bills. Amounts are whole dollars."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import JsonValue

from loopline.agents.environments.api_worlds.api import (
    Amount,
    ApiError,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import ACCOUNTS, BILLS
from loopline.agents.records import JsonObject


@dataclass
class Transfer:
    account: str
    to: str
    amount: int


@dataclass(kw_only=True)
class Bank(State):
    domain: ClassVar[str] = "bank"
    generated: ClassVar[frozenset[str]] = frozenset({"transfers"})

    people: tuple[str, ...]
    balances: dict[str, int]
    bills: dict[str, int]
    """Unpaid bills."""
    transfers: dict[str, Transfer]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        accounts = rng.sample(ACCOUNTS, 3)
        issued = rng.randint(100, 800)
        transfers = {
            f"X{issued + i}": Transfer(
                rng.choice(accounts), rng.choice(setting.people), rng.randint(5, 300)
            )
            for i in range(9)
        }
        return cls(
            people=setting.people,
            balances={account: rng.randint(20, 2500) for account in accounts},
            bills={bill: rng.randint(20, 900) for bill in rng.sample(BILLS, 4)},
            transfers=transfers,
            issued=issued + len(transfers),
        )

    def spend(self, account: str, amount: int) -> int:
        """Take money from an account and return the rest. Raises `ApiError`."""
        balance = find_row(self.balances, account, "account") - amount
        if balance < 0:
            raise ApiError(f"insufficient funds: {balance + amount} in {account}")
        self.balances[account] = balance
        return balance


@api("Balance of an account")
def get_balance(bank: Bank, account: Name) -> JsonObject:
    return {"balance": find_row(bank.balances, account, "account")}


@api("My accounts and their balances")
def list_accounts(bank: Bank) -> JsonObject:
    rows: list[JsonValue] = [
        {"balance": balance, "account": account} for account, balance in bank.balances.items()
    ]
    return {"accounts": rows}


@api("Transfers out of an account, oldest first")
def list_transfers(bank: Bank, account: Name, page: Page = 1) -> JsonObject:
    find_row(bank.balances, account, "account")
    rows: list[JsonObject] = [
        {"amount": row.amount, "to": row.to}
        for row in bank.transfers.values()
        if row.account == account
    ]
    return page_of("transfers", rows, page)


@api("Send money to a person", changes=True)
def transfer_money(bank: Bank, account: Name, to: Name, amount: Amount) -> JsonObject:
    if to not in bank.people:
        raise ApiError(f"unknown person {to}")
    balance = bank.spend(account, amount)
    bank.transfers[bank.new_id("X")] = Transfer(account, to, amount)
    return {"balance": balance}


@api("Unpaid bills")
def list_bills(bank: Bank) -> JsonObject:
    bills: dict[str, JsonValue] = {**bank.bills}
    return {"bills": bills}


@api("Pay a bill from an account", changes=True)
def pay_bill(bank: Bank, bill: Name, account: Name) -> JsonObject:
    amount = find_row(bank.bills, bill, "unpaid bill")
    balance = bank.spend(account, amount)
    del bank.bills[bill]
    return {"paid": amount, "balance": balance}
