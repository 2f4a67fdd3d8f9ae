"""Users' intents for their bank."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.bank import Bank
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    Unsolvable,
    compare_two,
    find_row,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    choose_row,
    combine_draws,
    from_world,
)
from loopline.agents.environments.api_worlds.names import ACCOUNTS, BILLS
from loopline.agents.environments.api_worlds.world import World

an_account = from_world("account", lambda world: world.state(Bank).balances)
no_account = from_world(
    "account", lambda world: [name for name in ACCOUNTS if name not in world.state(Bank).balances]
)
a_bill = from_world("bill", lambda world: world.state(Bank).bills)
no_bill = from_world(
    "bill", lambda world: [name for name in BILLS if name not in world.state(Bank).bills]
)
somebody = from_world("to", lambda world: world.setting.people)


def sufficient_money(rng: random.Random, world: World) -> Slots | None:
    account, balance = rng.choice([*world.state(Bank).balances.items()])
    return {"account": account, "amount": rng.randint(5, min(balance, 400))}


def money_missing(rng: random.Random, world: World) -> Slots | None:
    account, balance = rng.choice([*world.state(Bank).balances.items()])
    return {"account": account, "amount": balance + rng.randint(1, 500)}


def a_payable_bill(rng: random.Random, world: World) -> Slots | None:
    bank = world.state(Bank)
    fitting = [
        (bill, account)
        for bill, amount in bank.bills.items()
        for account, balance in bank.balances.items()
        if amount <= balance
    ]
    pick = choose_row(rng, fitting)
    return pick and {"bill": pick[0], "account": pick[1]}


def richest(slots: Slots) -> Program:
    wanted = slots["account"], slots["other"]
    first = yield Step(f"First {wanted[0]}.", "get_balance", {"account": wanted[0]})
    second = yield Step(
        f"{wanted[0]} has {first['balance']}. Now {wanted[1]}.",
        "get_balance", {"account": wanted[1]},
    )  # fmt: skip
    least, most = sorted((first["balance"], second["balance"]))
    best, runner_up = wanted if first["balance"] == most else wanted[::-1]
    yield compare_two((wanted[0], first["balance"]), (wanted[1], second["balance"]), largest=True)
    return Answer(
        f"There is more in {best}: {most} dollars.", (best, most),
        f"{best} has more.", (runner_up, least),
    )  # fmt: skip


def two_accounts(rng: random.Random, world: World) -> Slots | None:
    balances = world.state(Bank).balances
    account, other_account = rng.sample([*balances], 2)
    same = balances[account] == balances[other_account]
    return None if same else {"account": account, "other": other_account}


def bill_amount(slots: Slots) -> Program:
    bill = slots["bill"]
    observation = yield Step("I need the unpaid bills.", "list_bills", {})
    if bill not in observation["bills"]:
        raise Unsolvable(f"There is no {bill} bill.")
    amount = observation["bills"][bill]
    return Answer(f"The {bill} bill is {amount} dollars.", (amount,), f"{bill} is {amount}.")


def account_of(slots: Slots) -> Program:
    balance = slots["balance"]
    row = yield from find_row(
        "list_accounts", "accounts", "I need all my accounts.", {}, "balance", balance
    )
    account = row["account"]
    return Answer(
        f"Your {account} account has {balance} dollars.", (account,), f"{account} has {balance}."
    )


def a_balance(rng: random.Random, world: World) -> Slots | None:
    balances = [*world.state(Bank).balances.values()]
    balance = rng.choice(balances)
    return {"balance": balance} if balances.count(balance) == 1 else None


def no_balance(rng: random.Random, world: World) -> Slots | None:
    balance = rng.randint(20, 2500)
    return None if balance in world.state(Bank).balances.values() else {"balance": balance}


def empty_account(slots: Slots) -> Program:
    account, to = slots["account"], slots["to"]
    observation = yield Step(
        f"I need the balance of {account}.", "get_balance", {"account": account}
    )
    amount = observation["balance"]
    yield Step(
        f"There are {amount} dollars. I send them all.",
        "transfer_money", {"account": account, "to": to, "amount": amount},
    )  # fmt: skip
    return Answer(f"I sent {amount} dollars to {to}.", (amount,))


INTENTS = (
    lookup("bank.balance", draw=an_account, trouble=no_account),
    plan("bank.richer", richest, draw=two_accounts),
    lookup(
        "bank.transfer",
        draw=combine_draws(sufficient_money, somebody),
        trouble=combine_draws(money_missing, somebody),
    ),
    plan(
        "bank.empty",
        empty_account,
        draw=combine_draws(an_account, somebody),
        trouble=combine_draws(no_account, somebody),
    ),
    plan("bank.account_of", account_of, draw=a_balance, trouble=no_balance),
    plan("bank.bill", bill_amount, draw=a_bill, trouble=no_bill),
    lookup("bank.pay_bill", draw=a_payable_bill),
)
