"""``gem-core eval`` with a local model, and with the same model behind an endpoint."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
import transformers

from gem_core.cli import main
from gem_core.evaluation import evaluate
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.plan import read_subject

COUNT = 24


@pytest.fixture(scope="module")
def recipe_file(recipe, tmp_path_factory):
    """The recipe of these tests as a file, without what only the profile says."""
    path = tmp_path_factory.mktemp("recipe") / "r.toml"
    env = recipe.env[0]
    path.write_text(
        f'name = "r"\n[[env]]\nid = "{env.id}"\n'
        f'[context]\ntemplate = "{recipe.context.template}"\n'
        f"[limits]\nmax_tokens_per_turn = {recipe.limits.max_tokens_per_turn}\n"
        f"max_context_tokens = {recipe.limits.max_context_tokens}\n"
        '[model]\ndtype = "float32"\n'
    )
    return str(path)


def evaluated(recipe_file, out, *words):
    """Run the command; return the directory."""
    count = ["--episodes", str(COUNT)]
    assert main(["eval", recipe_file, *count, "--out", str(out), *map(str, words)]) == 0
    return EvalDir(out)


def turns(folder):
    """What happened in each episode, by item."""
    return {
        e.index: [(t.observation, t.action, t.reward, t.finish_reason) for t in e.turns]
        for _, e in folder.run.episodes()
    }


def test_a_local_model_plays_the_episodes_of_a_run(recipe_file, model_dir, tmp_path):
    folder = evaluated(recipe_file, tmp_path / "e", "--model", model_dir)
    metrics = folder.run.result["metrics"]
    expected = evaluate(read_subject([recipe_file]).recipe, model_dir, COUNT)
    for name in ("success/mean", "reward/mean", "turns/mean", "tokens/action", "episodes"):
        assert metrics[name] == pytest.approx(expected[name])
    assert [row.seed for row in folder.rows()] == list(range(-1, -1 - COUNT, -1))
    with_samples = evaluated(recipe_file, tmp_path / "s", "--model", model_dir, "-n", 2)
    both = turns(with_samples)
    assert [both[k] for k in range(COUNT)] == [turns(folder)[k] for k in range(COUNT)]
    assert [both[k] for k in range(COUNT)] != [both[COUNT + k] for k in range(COUNT)]


def test_an_interrupted_local_evaluation_continues(recipe_file, model_dir, tmp_path):
    words = ("--model", model_dir, "--concurrency", 5)
    folder = evaluated(recipe_file, tmp_path / "e", *words)
    whole = turns(folder)
    items = folder.path / "items.jsonl"
    items.write_text("".join(items.read_text().splitlines(keepends=True)[:7]))
    again = evaluated(recipe_file, tmp_path / "e", *words, "--resume")
    assert turns(again) == whole and len(again.rows()) == COUNT


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_same_model_behind_an_endpoint_plays_the_same_episodes(
    recipe_file, model_dir, tmp_path, api
):
    greedy = ["--set", "eval.temperature=0", "--model", model_dir]
    local = list(greedy)
    if api == "chat":
        local += ["--set", "context.template=chat"]
    folder = evaluated(recipe_file, tmp_path / "local", *local)
    with serving(model_dir) as url:
        remote = evaluated(
            recipe_file, tmp_path / "remote", *greedy, "--base-url", url, "--api", api
        )
    assert turns(remote) == turns(folder)
    assert remote.run.result["usage"]["requests"] == sum(map(len, turns(folder).values()))


@contextmanager
def serving(model_dir):
    """The model behind both interfaces, generated with transformers' own ``generate``."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir).float().eval()
    lock = threading.Lock()

    def complete(prompt, count):
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        with lock, torch.no_grad():
            whole = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
            )
        new = whole[0, ids.shape[1] :]
        ended = int(new[-1]) == tokenizer.eos_token_id
        text = tokenizer.decode(new, skip_special_tokens=True)
        return text, "stop" if ended else "length"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert body["temperature"] == 0
            if self.path == "/v1/chat/completions":
                prompt = tokenizer.apply_chat_template(
                    body["messages"], tokenize=False, add_generation_prompt=True
                )
                text, reason = complete(prompt, body["max_tokens"])
                choice = {"message": {"content": text}, "finish_reason": reason}
            else:
                text, reason = complete(body["prompt"], body["max_tokens"])
                choice = {"text": text, "finish_reason": reason}
            answer = json.dumps({"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
