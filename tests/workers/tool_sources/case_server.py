"""An MCP server over standard input and output with the habits of one case: `case_server.py
CASE.json RECEIVED`. It writes the arguments of its tool calls to RECEIVED, one JSON object per
line. It must start within milliseconds, so it imports only the standard library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CASE: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
RECEIVED = Path(sys.argv[2])
HABITS: dict[str, Any] = CASE.get("server", {})
GOOD = {"name": "good", "description": "It does.", "inputSchema": {"type": "object"}}
DONE = {"content": [{"type": "text", "text": "done"}]}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for one unknown to this server."""
    match message["method"]:
        case "initialize":
            version = HABITS.get("protocol_version", message["params"]["protocolVersion"])
            return {
                "protocolVersion": version,
                "capabilities": HABITS.get("capabilities", {"tools": {}}),
                "serverInfo": {"name": "case", "version": "1"},
            }
        case "tools/list":
            more = {"nextCursor": HABITS["next_cursor"]} if "next_cursor" in HABITS else {}
            return {"tools": [GOOD, *CASE.get("tools", [])], **more}
        case "tools/call":
            params = message["params"]
            with RECEIVED.open("a") as file:
                file.write(json.dumps({params["name"]: params.get("arguments")}) + "\n")
            return CASE.get("result", DONE)
        case _:
            return None


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    for line in HABITS.get("stdout_before", []):
        print(line, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        number = str(message["id"]) if HABITS.get("id_as_text") else message["id"]
        if method == "tools/list":
            for notification in HABITS.get("notify_before_list", []):
                print(json.dumps(notification), flush=True)
        if method == "tools/call":
            if "print_in_call" in HABITS:
                print(HABITS["print_in_call"], flush=True)
            if HABITS.get("exit_in_call"):
                sys.exit(1)
        result = answer(message)
        if result is None:
            say({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        else:
            say({"id": number, "result": result})


if __name__ == "__main__":
    main()
