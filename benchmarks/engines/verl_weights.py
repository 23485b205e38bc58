"""verl's path of weights into a vLLM engine, alone in one process: see `verl_cases.py`.

The engine has verl's worker extension; verl's sender passes buckets through shared memory. After
each change of the weights the engine's log-probabilities are held against transformers' own, with
the engine's prefix cache as it was, and emptied.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VERL_RAY_JOB_ID": "weights",
    "VERL_REPLICA_RANK": "0",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29777",
}
"""What verl's processes have in their environment."""
EXTENSION = "verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension"
PROMPT = "<|im_start|>user\nYou are playing language games."
LENGTH = 400
"""Tokens of a prompt: several blocks of the prefix cache, which has whole blocks only."""
NOISE = 0.02
"""Standard deviation of a change of the weights."""


class Pair:
    """The same model in vLLM and in transformers.

    Args:
        model_dir: the model.
    """

    def __init__(self, model_dir: str) -> None:
        from gem_verl.cpu import harness

        os.environ.update(PROCESS)
        os.environ.update(harness.environment(os.environ))
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from vllm import LLM

        self.engine = LLM(
            model=model_dir,
            dtype="float32",
            enforce_eager=True,
            max_model_len=520,
            max_num_seqs=64,
            distributed_executor_backend="external_launcher",
            worker_extension_cls=EXTENSION,
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self.size = len(tokenizer)
        self.model = AutoModelForCausalLM.from_pretrained(model_dir).float().eval()
        extra = {"vocab_size": self.size, "banned_token_ids": None}
        self.engine.collective_rpc("monkey_patch_model", kwargs=extra)
        texts = [f"{number} {PROMPT}{' Guess' * LENGTH}" for number in range(16)]
        self.prompts = [tokenizer.encode(text)[:LENGTH] for text in texts]

    def difference(self) -> float:
        """Return the largest difference of log-probabilities of sampled tokens."""
        import torch
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": prompt} for prompt in self.prompts]
        sampling = SamplingParams(max_tokens=6, logprobs=0)
        outputs = self.engine.generate(prompts, sampling, use_tqdm=False)
        worst = 0.0
        with torch.no_grad():
            for prompt, output in zip(self.prompts, outputs, strict=True):
                completion = output.outputs[0]
                ids = list(completion.token_ids)
                logits = self.model(torch.tensor([prompt + ids])).logits[0, :, : self.size]
                expected = logits.log_softmax(-1)[len(prompt) - 1 : -1]
                for i, token in enumerate(ids):
                    found = completion.logprobs[i][token].logprob
                    worst = max(worst, abs(float(expected[i, token]) - found))
        return worst

    def change(self) -> float:
        """Change the weights, send them to the engine and return the seconds of that."""
        import torch
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
            BucketedWeightSender,
        )

        with torch.no_grad():
            for weight in self.model.parameters():
                weight.add_(torch.randn_like(weight) * NOISE)
        worker: Any = self.engine.llm_engine.model_executor.driver_worker
        worker = getattr(worker, "worker", worker)
        sender = BucketedWeightSender(worker._get_zmq_handle(), 1, use_shm=True)
        named = ((name, weight.detach()) for name, weight in self.model.named_parameters())
        sending = threading.Thread(target=lambda: asyncio.run(sender.async_send_weights(named)))
        began = time.perf_counter()
        sending.start()
        self.engine.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True})
        sending.join()
        return time.perf_counter() - began


def measure(model_dir: str) -> dict[str, Any]:
    """Return the differences before any change, and after each of two."""
    pair = Pair(model_dir)
    figures: dict[str, Any] = {"initial": pair.difference(), "syncs": []}
    for _ in range(2):
        seconds = pair.change()
        stale = pair.difference()
        pair.engine.reset_prefix_cache()
        fresh = pair.difference()
        figures["syncs"].append({"seconds": seconds, "stale_cache": stale, "fresh_cache": fresh})
    return figures
