"""A scripted OpenAI-compatible HTTP server: a predictable provider for tests and load.

`python -m loopline.workers.scripted_api --port 0 --latency 1.0` prints its address in JSON.
In a test: `async with ScriptedServer(ServerOptions(…)) as server: … server.url`.
"""

from loopline.workers.scripted_api.app import ServerOptions
from loopline.workers.scripted_api.server import ScriptedServer

__all__ = ["ScriptedServer", "ServerOptions"]
