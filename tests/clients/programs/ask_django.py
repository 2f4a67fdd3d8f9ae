"""Sends requests to the Django project of `docs/build/apps.md`, whose app runs in this process."""

import asyncio
import json

import django
import web
from django.test import AsyncClient, Client
from shop_app import app

from loopline.runtime.app.testing import call


async def main() -> None:
    django.setup()
    says = [call("price", sku="A7"), '{"sku": "A7", "price": 12.5}', "It is open.", "Until six."]
    async with app.testing(slm=says):
        answers = [(await AsyncClient().get("/quotes/A7")).json()]
        for question in ("Are you open?", "Until when?"):
            # A sync view runs in its own thread, as under Django's server.
            answer = await asyncio.to_thread(
                Client().get, "/chats/ada", query_params={"question": question}
            )
            answers.append(answer.json())
        answers.append([message.role for message in await app.thread("ada").messages()])
    assert web.urlpatterns
    print(json.dumps(answers))


asyncio.run(main())
