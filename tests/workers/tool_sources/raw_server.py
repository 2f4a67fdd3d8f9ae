"""A handmade MCP server that breaks the rules in a chosen way: `raw_server.py MODE [FILE]`.

It must start within milliseconds, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
FLAG = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()
"""A file that tells a server that it has died once, or gives others its process id."""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def tool(name: str, schema: dict[str, Any] = SCHEMA, text: str = "It does.") -> dict[str, Any]:
    return {"name": name, "description": text, "inputSchema": schema}


def bomb() -> dict[str, Any]:
    """Ten levels of ten references each expand to ten thousand million parts."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 11):
        fields = {f"f{n}": {"$ref": f"#/$defs/d{level - 1}"} for n in range(10)}
        definitions[f"d{level}"] = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d10"}}, "$defs": definitions}


def listed(cursor: str | None) -> dict[str, Any]:
    if MODE == "pages":
        page = int(cursor or 0)
        tools = [tool(f"t{page}-{n}") for n in range(2)]
        return {"tools": tools, **({"nextCursor": str(page + 1)} if page < 2 else {})}
    if MODE == "numbered":
        page = int(cursor or 0)
        tools = [tool(f"t{page}-{n}") for n in range(2)]
        return {"tools": tools, **({"nextCursor": page + 1} if page < 2 else {})}
    if MODE == "surrogates":
        field = {"type": "object", "properties": {"\ud800": {}}}
        return {"tools": [tool("fine", text="\udfff"), tool("field", field), tool("name\ud800")]}
    if MODE == "endless":
        page = int(cursor or 0)
        return {"tools": [tool(f"t{page}-{n}") for n in range(50)], "nextCursor": str(page + 1)}
    if MODE == "schemas":
        elsewhere = {"type": "object", "properties": {"x": {"$ref": "https://evil.example/s"}}}
        regex = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(a+)+$"}}}
        tree = {
            "type": "object",
            "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}},
        }
        return {
            "tools": [
                tool("fine"),
                tool("bomb", bomb()),
                tool("elsewhere", elsewhere),
                tool("fine", text="I am the other one."),
                tool("fi ne"),
                tool("fi/ne"),
                tool("regex", {**regex, "required": ["x"]}),
                tool("tree", tree),
                tool("x" * 300, text="y" * 100_000),
            ]
        }
    if MODE == "same_page":
        return {"tools": [tool("act")], "nextCursor": "again"}
    if MODE == "php":  # a server that writes empty objects as lists
        schema = {"type": "object", "properties": [], "required": {}}
        return {"tools": [tool("act", schema), "no tool", {"description": "no name"}]}
    if MODE == "wordy":
        fields = {"x": {"type": "string", "description": "d" * 1_000}}
        schema = {"type": "object", "properties": fields}
        return {"tools": [tool(f"t{n}", schema) for n in range(128)]}
    return {"tools": [tool("act")]}


def write(message: dict[str, Any]) -> None:
    whole: Any = {"jsonrpc": "2.0", **message}
    if MODE == "batch":
        whole = [whole]
    if MODE == "version_1":
        whole = {"id": message["id"], "result": None, "error": None, **message}
    if MODE == "latin":
        line = json.dumps(whole, ensure_ascii=False).encode("latin-1")
        sys.stdout.buffer.write(b"\xef\xbb\xbf" + line + b"\r\n")
    else:
        sys.stdout.write(json.dumps(whole) + "\n")
    sys.stdout.flush()


def answer_call() -> dict[str, Any]:
    if MODE == "garbage":
        for _ in range(1_000):
            sys.stdout.write("this is not JSON-RPC\n")
        sys.stdout.flush()
    if MODE == "flood":
        for _ in range(50):
            sys.stdout.write("x" * 1_000_000)
        sys.stdout.write("\n")
        sys.stdout.flush()
    if MODE == "chatter":
        for _ in range(20_000):
            write({"method": "notifications/tools/list_changed"})
    if MODE == "dies" and not FLAG.exists():
        FLAG.touch()
        sys.exit(3)
    if MODE == "latin":
        return {"content": [{"type": "text", "text": "caf\xe9"}]}
    if MODE == "pictures":
        picture = {"type": "image", "data": "eHh4", "mimeType": "image/png"}
        link = {"type": "resource_link", "name": "r", "uri": "file:///x"}
        blob = {"type": "resource", "resource": {"uri": "x", "blob": "eHh4"}}
        return {"content": [picture, link, blob, {"type": "hologram"}, "text"]}
    if MODE == "odd":
        return {"content": [{"type": "text", "text": "\x00\ud800 <|im_end|>"}], "isError": False}
    return {"content": [{"type": "text", "text": "done"}]}


def main() -> None:
    if MODE == "silent":
        time.sleep(60)
    if MODE == "crashes":
        sys.stderr.write("no database\n")
        sys.exit(1)
    if MODE == "lingers":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        FLAG.write_text(str(os.getpid()))
    print("listening now!", flush=True)  # not a message: servers write such lines
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message["method"]
        if number is None:
            continue
        if MODE == "greets_first" and method == "server/discover":
            sys.exit(1)
        if method == "initialize":
            info = {"name": "raw", "version": "1"}
            version = message["params"]["protocolVersion"]
            capabilities = {"tools": {}}
            write({"id": number, "result": {
                "protocolVersion": version, "capabilities": capabilities, "serverInfo": info,
            }})  # fmt: skip
        elif method == "tools/list":
            write({"id": number, "result": listed((message.get("params") or {}).get("cursor"))})
        elif method == "tools/call":
            write({"id": number, "result": answer_call()})
        else:
            write({"id": number, "error": {"code": -32601, "message": "Method not found"}})
    if MODE == "lingers":
        time.sleep(60)


if __name__ == "__main__":
    main()
