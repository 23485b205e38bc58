"""Measure the peak memory of training steps on a CPU, and compare it with `gem_core.plan`.

    python benchmarks/memory/run.py --out benchmarks/memory/results.json

Each size runs in a process of its own: two optimizer steps of a random Qwen3 model in float32, with
AdamW and the cross-entropy of all tokens. The figure is the peak resident memory of the process
less that before the model was made, when a small model has loaded the libraries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from gem_core.plan.memory import cpu_peak
from gem_core.plan.shapes import Shape

SIZES = {
    "small": (Shape(256, 4, 4, 4, 64, 768, 8192, True), 1024, False),
    "medium": (Shape(384, 4, 6, 6, 64, 1152, 8192, True), 1024, False),
    "large": (Shape(512, 6, 8, 8, 64, 1536, 16384, True), 1024, False),
    "checkpointing": (Shape(512, 6, 8, 8, 64, 1536, 16384, True), 1024, True),
}
"""Name: sizes of the model, tokens of the one sequence, gradient checkpointing."""


def measure(name: str) -> dict[str, object]:
    """Run one size in a child process and return its figures."""
    child = subprocess.run(
        [sys.executable, __file__, "--child", name], capture_output=True, text=True, check=True
    )
    shape, tokens, checkpointing = SIZES[name]
    measured = int(child.stdout.splitlines()[-1])
    predicted = cpu_peak(shape, tokens, checkpointing)
    return {
        "size": name,
        "shape": asdict(shape),
        "tokens": tokens,
        "gradient_checkpointing": checkpointing,
        "parameters": shape.parameters,
        "measured_bytes": measured,
        "predicted_bytes": predicted,
        "ratio": round(predicted / measured, 4),
    }


def train(name: str) -> int:
    """Return the growth of the peak resident memory in bytes; a small model loads the libraries."""
    _steps(Shape(64, 1, 1, 1, 64, 64, 64, True), 16, True)
    before = _resident("VmRSS")
    _steps(*SIZES[name])
    return _resident("VmHWM") - before


def _steps(shape: Shape, tokens: int, checkpointing: bool) -> None:
    """Take two optimizer steps."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    config = Qwen3Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        use_cache=False,
    )
    model = Qwen3ForCausalLM(config)
    if sum(weight.numel() for weight in model.parameters()) != shape.parameters:
        raise ValueError("Shape.parameters does not count this model's weights.")
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, shape.vocab, (1, tokens))
    for _ in range(2):
        logits = model(input_ids=ids).logits
        torch.nn.functional.cross_entropy(logits[0], ids[0]).backward()
        del logits
        optimizer.step()
        optimizer.zero_grad()


def _resident(field: str) -> int:
    """Return ``VmRSS`` (now) or ``VmHWM`` (peak) of this process in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure every size, or the one that a parent process asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--child", choices=SIZES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(train(arguments.child))
        return
    results = []
    for name in arguments.sizes:
        results.append(measure(name))
        print(f"{name:14} predicted / measured = {results[-1]['ratio']}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
