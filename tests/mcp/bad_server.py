"""An MCP server by hand, line by line, whose tools misbehave."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = ("echo", "hang", "garbage", "wrong_result", "die")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        if result is not None:
            send({"jsonrpc": "2.0", "id": message["id"], **result})


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "bad", "version": "1"}
        return {
            "result": {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        }
    if method == "tools/list":
        return {"result": {"tools": [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]}}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    return {"error": {"code": -32601, "message": "no such method"}}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    if name == "hang":
        return None
    if name == "die":
        os._exit(1)
    if name == "wrong_result":
        return {"result": {"content": "this is no list"}}
    text = str(arguments.get("text"))
    if name == "garbage":
        sys.stdout.write(
            'not JSON\n{"half": \n\x00\n[]\n{"jsonrpc": "2.0", "id": 9999, "result": 1}\n'
        )
        sys.stdout.flush()
        text = "after the garbage"
    return {"result": {"content": [{"type": "text", "text": text}]}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
