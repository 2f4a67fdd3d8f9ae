"""Users' intents for the shop."""

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
from loopline.agents.environments.api_worlds.intents.drawing import (
    choose_row,
    combine_draws,
    from_values,
    from_world,
)
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
    pick = choose_row(rng, [(n, row) for n, row in shop.products.items() if row.stock < 8])
    return pick and {"product": pick[0], "quantity": rng.randint(max(2, pick[1].stock + 1), 9)}


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
    lookup("shop.price", draw=a_product, trouble=no_product),
    lookup("shop.stock", draw=a_product),
    plan("shop.cheapest", cheapest, draw=a_kind, trouble=no_kind),
    lookup("shop.add", draw=in_stock, trouble=too_few),
    plan(
        "shop.add_cheapest",
        add_cheapest,
        draw=cheapest_in_stock,
        trouble=combine_draws(no_kind, from_values("quantity", (2, 3, 4, 5))),
    ),
    plan("shop.order_without", order_without, draw=in_the_cart, trouble=not_in_the_cart),
)
