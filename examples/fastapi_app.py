"""A web service that sends questions to an app: `uvicorn --app-dir examples fastapi_app:web`."""

from fastapi import FastAPI
from shop_app import Quote, app

web = FastAPI(lifespan=app.lifespan)


@web.get("/quotes/{sku}")
async def quote(sku: str) -> Quote:
    return await app.ask(f"How much is {sku}?", answer=Quote, timeout=30)


@web.post("/chats/{customer}")
async def chat(customer: str, question: str) -> str:
    return await app.thread(customer).ask(question, timeout=30)
