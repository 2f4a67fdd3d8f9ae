"""What users want of their bank."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.bank import Bank
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    Unsolvable,
    find_row,
    lookup,
    plan,
    two_weighed,
)
from loopline.agents.environments.api_worlds.intents.drawing import both, from_world, one
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


def money_there(rng: random.Random, world: World) -> Slots | None:
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
    found = one(rng, fitting)
    return found and {"bill": found[0], "account": found[1]}


def richest(slots: Slots) -> Program:
    wanted = slots["account"], slots["other"]
    first = yield Step(f"First {wanted[0]}.", "get_balance", {"account": wanted[0]})
    second = yield Step(
        f"{wanted[0]} has {first['balance']}. Now {wanted[1]}.",
        "get_balance", {"account": wanted[1]},
    )  # fmt: skip
    least, most = sorted((first["balance"], second["balance"]))
    best, other = wanted if first["balance"] == most else wanted[::-1]
    yield two_weighed((wanted[0], first["balance"]), (wanted[1], second["balance"]), largest=True)
    return Answer(
        f"There is more in {best}: {most} dollars.", (best, most),
        f"{best} has more.", (other, least),
    )  # fmt: skip


def two_accounts(rng: random.Random, world: World) -> Slots | None:
    balances = world.state(Bank).balances
    account, other = rng.sample([*balances], 2)
    same = balances[account] == balances[other]
    return None if same else {"account": account, "other": other}


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
    lookup("bank.balance", "get_balance", "account", "I need the balance of {account}.",
           "Your {account} account has {balance} dollars.", """
        What is the balance of my {account} account?
        How much money is in my {account} account?
        Tell me the balance of the {account} account.
        Check how many dollars I have in {account}.
        Find out how much is left in my {account} account.
        How many dollars does my {account} account have?
        {account} account: what is the balance?
        Look up the balance of {account} at the bank.
        What do I have in the {account} account?
        """, draw=an_account, facts="balance", trouble=no_account),
    plan("bank.richer", "get_balance", richest, """
        Is there more money in {account} or in {other}, and how much is it?
        Which account has more, {account} or {other}, and what is its balance?
        Compare my accounts {account} and {other}: which has more, and how much?
        Tell me which of {account} and {other} has the higher balance, and the balance.
        Find out where I have more money, in {account} or in {other}, and how much.
        {account} or {other}: which account is fuller, and what is in it?
        Of my accounts {account} and {other}, which is the larger, and how much does it have?
        Check whether {account} or {other} has more money, and tell me how much.
        """, draw=two_accounts),
    lookup("bank.transfer", "transfer_money", "account to amount", "I send {amount} dollars to {to}.",
           "I sent {amount} dollars to {to}. {balance} are left.", """
        Send {amount} dollars to {to} from my {account} account.
        Transfer {amount} dollars from {account} to {to}.
        Pay {to} {amount} dollars out of my {account} account.
        I owe {to} {amount} dollars. Send them from {account}.
        Give {to} {amount} dollars from the {account} account.
        {to} should get {amount} dollars from my {account} account.
        From {account}, send {to} {amount} dollars.
        Wire {amount} dollars to {to}, from {account}.
        Make a transfer of {amount} dollars to {to} from {account}.
        """, draw=both(money_there, somebody), trouble=both(money_missing, somebody)),
    plan("bank.empty", "get_balance transfer_money", empty_account, """
        Send {to} all the money of my {account} account.
        Transfer everything in {account} to {to}.
        Empty my {account} account: send it all to {to}.
        Give {to} whatever is in my {account} account.
        Check the balance of {account} and send all of it to {to}.
        {to} should get everything from my {account} account.
        I want to close {account}. Transfer the whole balance to {to}.
        Pay the full balance of {account} to {to}.
        Wire {to} everything that is left in {account}.
        """, draw=both(an_account, somebody), trouble=both(no_account, somebody)),
    plan("bank.account_of", "list_accounts", account_of, """
        Which of my accounts has {balance} dollars?
        In which account are {balance} dollars?
        Tell me which account has a balance of {balance} dollars.
        Find the account that has {balance} dollars.
        Look through my accounts: which one has {balance} dollars?
        One of my accounts has {balance} dollars. Which one is it?
        {balance} dollars: of which account is that the balance?
        Check which of my accounts has exactly {balance} dollars.
        """, draw=a_balance, trouble=no_balance),
    plan("bank.bill", "list_bills", bill_amount, """
        How much is my {bill} bill?
        What do I have to pay for the {bill} bill?
        Tell me the amount of the {bill} bill.
        Check how high the {bill} bill is.
        Find out how many dollars the {bill} bill is.
        What is the amount of my unpaid {bill} bill?
        {bill} bill: how much is it?
        Look up what I owe for {bill}.
        How many dollars do I owe for {bill}?
        """, draw=a_bill, trouble=no_bill),
    lookup("bank.pay_bill", "pay_bill", "bill account", "I pay the {bill} bill.",
           "I paid {paid} dollars for {bill}.", """
        Pay my {bill} bill from {account}.
        Use my {account} account to pay the {bill} bill.
        Settle the {bill} bill with money from {account}.
        The {bill} bill has to be paid from {account}.
        From {account}, pay the {bill} bill.
        Take the money for the {bill} bill from {account} and pay it.
        Pay what I owe for {bill} out of {account}.
        My {bill} bill is open. Pay it from {account}.
        """, draw=a_payable_bill),
)  # fmt: skip
