"""``gem-core init``: a new package with an environment and what belongs to it, or a trainer."""

from __future__ import annotations

import argparse
import shlex

from gem_init.names import derive_names
from gem_init.package import write_package


def init(arguments: argparse.Namespace) -> int:
    """Write the package; print the commands that come next."""
    trainer = arguments.trainer
    names = derive_names(arguments.folder, trainer=trainer)
    files = write_package(arguments.folder, names, trainer=trainer)
    folder = shlex.quote(str(arguments.folder))
    print(f"{arguments.folder}: a package of {len(files)} files, described in its README.md. Next:")
    print(f"  pip install -e {folder}")
    if trainer:
        print(f"  gem-core conform {names.namespace} --only keys values unknown-keys")
        print(f"  gem-core conform {names.namespace}")
        return 0
    print(f"  gem-core check {names.namespace}:Change-v0")
    print(
        f"  gem-core train {folder}/recipe.toml --trainer trl --profile tiny "
        f"--run runs/{names.module}"
    )
    return 0
