"""A shop with stock, a cart and orders."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Count,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import COLOURS, PRODUCTS
from loopline.agents.records import JsonObject

MAX_IN_CART = 8
"""Maximum number of different products in the cart: an observation shows all of them."""


@dataclass
class Product:
    kind: str
    price: int
    stock: int
    rating: int


@dataclass(kw_only=True)
class Shop(State):
    domain: ClassVar[str] = "shop"
    generated: ClassVar[frozenset[str]] = frozenset({"orders"})

    products: dict[str, Product]
    cart: dict[str, int]
    orders: dict[str, str]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        products: dict[str, Product] = {}
        for kind in rng.sample(PRODUCTS, 7):
            colours = rng.sample(COLOURS, rng.choice((1, 2, 3, 3, 4, 5)))
            prices = rng.sample(range(5, 200), len(colours))
            ratings = rng.choices(range(1, 6), k=len(colours))
            for colour, price, rating in zip(colours, prices, ratings, strict=True):
                stock = 0 if rng.random() < 0.15 else rng.randint(1, 12)
                products[f"{colour} {kind}"] = Product(kind, price, stock, rating)
        there = [name for name, row in products.items() if row.stock > 2]
        cart = {name: rng.randint(1, 2) for name in rng.sample(there, 2)}
        return cls(products=products, cart=cart, orders={}, issued=rng.randint(100, 800))


@api("Products of a kind")
def search_products(shop: Shop, kind: Name, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"product": name, "price": row.price}
        for name, row in shop.products.items()
        if row.kind == kind
    ]
    return page_of("products", rows, page)


@api("Price, stock and rating of a product")
def get_product(shop: Shop, product: Name) -> JsonObject:
    row = find_row(shop.products, product, "product")
    return {"price": row.price, "stock": row.stock, "rating": row.rating}


@api("Put a product into the cart", changes=True)
def add_to_cart(shop: Shop, product: Name, quantity: Count) -> JsonObject:
    row = find_row(shop.products, product, "product")
    wanted = shop.cart.get(product, 0) + quantity
    if row.stock < wanted:
        raise ApiError(f"only {row.stock} of {product} in stock" if row.stock else "out of stock")
    if product not in shop.cart and len(shop.cart) >= MAX_IN_CART:
        raise ApiError("the cart is full")
    shop.cart[product] = wanted
    return {"in_cart": wanted}


@api("Take a product out of the cart", changes=True)
def remove_from_cart(shop: Shop, product: Name) -> JsonObject:
    if product not in shop.cart:
        raise ApiError(f"{product} is not in the cart")
    del shop.cart[product]
    return {"removed": product}


@api("Products and total price of the cart")
def view_cart(shop: Shop) -> JsonObject:
    return {"items": {**shop.cart}, "total": _total(shop)}


@api("Order what is in the cart", changes=True)
def checkout(shop: Shop) -> JsonObject:
    if not shop.cart:
        raise ApiError("the cart is empty")
    total = _total(shop)
    for product, quantity in shop.cart.items():
        shop.products[product].stock -= quantity
    order = shop.new_id("N")
    shop.orders[order] = repr(sorted(shop.cart.items()))
    shop.cart.clear()
    return {"order": order, "total": total}


def _total(shop: Shop) -> int:
    return sum(shop.products[name].price * count for name, count in shop.cart.items())
