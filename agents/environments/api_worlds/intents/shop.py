"""What users want of the shop."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.shop import Shop
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import both, fixed, from_world, one
from loopline.agents.environments.api_worlds.names import PRODUCTS
from loopline.agents.environments.api_worlds.world import World

a_product = from_world("product", lambda world: world.state(Shop).products)
a_kind = from_world(
    "kind", lambda world: sorted({row.kind for row in world.state(Shop).products.values()})
)
in_the_cart = from_world("product", lambda world: world.state(Shop).cart)
not_in_the_cart = from_world(
    "product",
    lambda world: [n for n in world.state(Shop).products if n not in world.state(Shop).cart],
)


def no_kind(rng: random.Random, world: World) -> Slots | None:
    there = {row.kind for row in world.state(Shop).products.values()}
    return {"kind": rng.choice([kind for kind in PRODUCTS if kind not in there])}


def no_product(rng: random.Random, world: World) -> Slots | None:
    return {"product": f"purple {rng.choice(PRODUCTS)}"}


def in_stock(rng: random.Random, world: World) -> Slots | None:
    shop = world.state(Shop)
    rows = [(n, row) for n, row in shop.products.items() if row.stock > 1 and n not in shop.cart]
    product, row = rng.choice(rows)
    return {"product": product, "quantity": rng.randint(2, min(row.stock, 6))}


def too_few(rng: random.Random, world: World) -> Slots | None:
    shop = world.state(Shop)
    found = one(rng, [(n, row) for n, row in shop.products.items() if row.stock < 8])
    return found and {"product": found[0], "quantity": rng.randint(max(2, found[1].stock + 1), 9)}


def cheapest_in_stock(rng: random.Random, world: World) -> Slots | None:
    shop = world.state(Shop)
    kind = rng.choice(sorted({row.kind for row in shop.products.values()}))
    row = min((row for row in shop.products.values() if row.kind == kind), key=lambda r: r.price)
    return {"kind": kind, "quantity": rng.randint(2, min(row.stock, 6))} if row.stock > 3 else None


def cheapest(slots: Slots) -> Program:
    best = yield from best_of(
        "search_products", "products", f"I need the products of kind {slots['kind']}.",
        {"kind": slots["kind"]}, label="product", by="price",
    )  # fmt: skip
    product, price = best["product"], best["price"]
    return Answer(
        f"The cheapest is the {product} for {price} dollars.", (product, price),
        f"The {product} with {price} is the cheapest.",
    )  # fmt: skip


def add_cheapest(slots: Slots) -> Program:
    best = yield from best_of(
        "search_products", "products", f"I need the products of kind {slots['kind']}.",
        {"kind": slots["kind"]}, label="product", by="price",
    )  # fmt: skip
    product = best["product"]
    yield Step(
        f"The {product} is the cheapest, so I put {slots['quantity']} into the cart.",
        "add_to_cart", {"product": product, "quantity": slots["quantity"]},
    )  # fmt: skip
    return Answer(f"The {product} is in your cart.", (product,))


def order_without(slots: Slots) -> Program:
    product = slots["product"]
    yield Step(f"First I take out the {product}.", "remove_from_cart", {"product": product})
    order = yield Step("Now I order the rest.", "checkout", {})
    return Answer(f"Your order {order['order']} costs {order['total']} dollars.", (order["total"],))


INTENTS = (
    lookup("shop.price", "get_product", "product", "I look up the {product}.",
           "The {product} costs {price} dollars.", """
        What does the {product} cost?
        How much is the {product}?
        Tell me the price of the {product}.
        Find out how much the {product} costs.
        What is the price of the {product} in the shop?
        I would like to know the price of the {product}.
        {product}: what does it cost?
        Check the price of the {product}.
        How many dollars do I need for the {product}?
        Look up what the {product} costs.
        """, draw=a_product, facts="price", trouble=no_product),
    lookup("shop.stock", "get_product", "product", "I look up the {product}.",
           "There are {stock} of the {product} in stock.", """
        How many of the {product} are in stock?
        What is the stock of the {product}?
        Tell me how many of the {product} the shop has.
        Find out how many of the {product} are left.
        Check the stock of the {product}.
        I want to know how many of the {product} there are.
        {product}: how many does the shop have?
        Look up how many of the {product} can be bought.
        """, draw=a_product, facts="stock"),
    plan("shop.cheapest", "search_products", cheapest, """
        What is the cheapest {kind}?
        Which {kind} [costs the least|is the cheapest], and what does it cost?
        Find the cheapest {kind} in the shop.
        I need a {kind}. Which one is the cheapest?
        Tell me the cheapest {kind} and its price.
        Look for the least expensive {kind}.
        Show me the {kind} with the lowest price.
        Of all products of kind {kind}, which has the lowest price?
        What is the lowest price for a {kind}, and which one is it?
        """, draw=a_kind, trouble=no_kind),
    lookup("shop.add", "add_to_cart", "product quantity", "I put {quantity} of it into the cart.",
           "Now there are {in_cart} of the {product} in your cart.", """
        Put {quantity} of the {product} into my cart.
        Add {quantity} pieces of the {product} to the cart.
        I want to buy the {product}, {quantity} pieces. Put them into the cart.
        Place the {product} in my cart, quantity {quantity}.
        {quantity} of the {product}, into the cart.
        Add the {product} to my cart {quantity} times.
        My cart needs {quantity} of the {product}.
        I take {quantity} of the {product}. Add them to my cart.
        """, draw=in_stock, trouble=too_few),
    plan("shop.add_cheapest", "search_products add_to_cart", add_cheapest, """
        Put {quantity} of the cheapest {kind} into my cart.
        Find the cheapest {kind} and add {quantity} of it to the cart.
        Add {quantity} of the least expensive {kind} to my cart.
        I need {quantity} of a {kind}, as cheap as possible. Put them into the cart.
        Look for the {kind} with the lowest price and put {quantity} into my cart.
        {quantity} of the cheapest {kind}, into the cart.
        My cart needs {quantity} of the cheapest {kind}.
        Get me {quantity} of the cheapest {kind} into the cart.
        """, draw=cheapest_in_stock, trouble=both(no_kind, fixed("quantity", (2, 3, 4, 5)))),
    plan("shop.order_without", "remove_from_cart checkout", order_without, """
        Take the {product} out of my cart and order the rest. What does it cost?
        Remove the {product} from the cart, then order. How much is it in total?
        I do not want the {product}. Order everything else in my cart and tell me the total.
        Order my cart without the {product} and tell me the price.
        Check out my cart, but not the {product}. What is the total?
        Without the {product}, order what is in my cart. How much do I pay?
        Drop the {product} from the cart and check out. What do I pay?
        Buy all in my cart except the {product} and tell me the total.
        """, draw=in_the_cart, trouble=not_in_the_cart),
)  # fmt: skip
