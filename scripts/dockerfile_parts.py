"""The Dockerfile of a trainer, for ``install_lines.py``: the lines of docs/install.md, in order."""

from __future__ import annotations

from shlex import quote

from gem_core.runs.install import PUBLISHED, Stack, shell_block, stack

SYSTEM = "22.04"
"""Ubuntu; it has packages of Python 3.10 and 3.11."""
IMAGES = {"13.0": "13.0.1", "12.4": "12.4.1", "12.8": "12.8.1"}
"""Tag of NVIDIA's image with nvcc and a compiler, by CUDA."""
EVERY_SHELL = "/etc/every-shell.sh"
"""File with the lines that every shell needs; bash reads it by ``BASH_ENV``."""

PARTS = (
    "pyproject.toml README.md LICENSE ./",
    "gem_core gem_core",
    "integrations integrations",
    "recipes recipes",
)
"""What of a checkout pip builds gem-core from, as long as the package index does not have it."""


def dockerfile(name: str, title: str) -> str:
    """Return the Dockerfile of a trainer.

    Args:
        name: of the trainer.
        title: its name in texts.
    """
    chosen = stack(name)
    lines = shell_block(name).splitlines()
    exports = [line for line in lines if line.startswith("export ")]
    folder = f"/opt/{name}-env"
    parts = [
        f"# The lines of docs/install.md for {title}; never built. Written by",
        "# scripts/install_lines.py.",
        "# In a checkout:",
        f"#     docker build -f integrations/gem_{name}/Dockerfile -t gem-core-{name} .",
        f"#     docker run --gpus all --shm-size={shared_gb(chosen)}g -it gem-core-{name}",
        "# The lines pin what decides (DL3008, DL3013), and each is a layer, as flash-attn",
        "# may fail after an hour (DL3059).",
        "# hadolint global ignore=DL3008,DL3013,DL3059",
        f"FROM nvidia/cuda:{IMAGES[chosen.cuda]}-devel-ubuntu{SYSTEM}",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "RUN apt-get update && apt-get install -y --no-install-recommends \\",
        f"    git {packages(chosen.python)} \\",
        "    && rm -rf /var/lib/apt/lists/*",
        "ENV PIP_NO_CACHE_DIR=1",
        "WORKDIR /opt",
        *([] if PUBLISHED else [f"COPY {part}" for part in PARTS]),
        f"RUN {lines[0]}",
        f"ENV VIRTUAL_ENV={folder} PATH={folder}/bin:$PATH",
        *(f"RUN {line}" for line in lines[1:] if line not in exports),
    ]
    if exports:
        texts = " ".join(map(quote, exports))
        parts += ["# hadolint ignore=SC2016"]  # they are expanded in each shell
        parts += [f"RUN printf '%s\\n' {texts} > {EVERY_SHELL}", f"ENV BASH_ENV={EVERY_SHELL}"]
        parts += ["""ENTRYPOINT ["/bin/bash", "-c", "exec \\"$0\\" \\"$@\\""]"""]
    parts += ["WORKDIR /work", 'CMD ["bash"]']
    return "\n".join(parts) + "\n"


def packages(python: str) -> str:
    """Return the system's packages of a Python with headers and the shared library."""
    return f"python{python} python{python}-dev python{python}-venv"


def shared_gb(chosen: Stack) -> str:
    """Return the shared memory of a container, in GB: what the doctor advises."""
    return f"{max(chosen.shm_gb, chosen.shm_taken_gb):.0f}"
