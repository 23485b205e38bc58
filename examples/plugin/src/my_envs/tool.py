"""A tool that names the next coin."""

from __future__ import annotations

import re
from typing import Any

from gem_core.tools import Call, Tool, ToolResult

from my_envs.coins import largest_coin

_AMOUNT = re.compile(r"[1-9][0-9]{0,8}")


class LargestCoin(Tool):
    """Names the largest coin that is not more than an amount: ``<coin>37</coin>``."""

    name = "coin"
    description = "Names the largest coin that is not more than an amount."
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "string", "description": "a whole number above 0"}},
        "required": ["amount"],
    }
    tag = "coin"
    slow = False

    def run(self, call: Call, session: Any, seconds: float) -> ToolResult:
        """Return the coin; a text that is no amount is a failed call, which the agent is told."""
        amount = call.arguments["amount"].strip()
        if not _AMOUNT.fullmatch(amount):
            return ToolResult("Write a whole number above 0, such as 37.", "no_amount")
        return ToolResult(f"The largest coin is {largest_coin(int(amount))}.")
