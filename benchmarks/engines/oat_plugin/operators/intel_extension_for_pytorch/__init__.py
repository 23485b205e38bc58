"""Stands in for what vLLM 0.8 uses of Intel's extension on a CPU: see `llm.modules`."""
