"""``gem-core init``: a new package with an environment, a tool, an estimator and their tests."""

from __future__ import annotations

import argparse
import shlex

from gem_init.names import derive_names
from gem_init.package import write_package


def init(arguments: argparse.Namespace) -> int:
    """Write the package; print the commands that come next."""
    names = derive_names(arguments.folder)
    files = write_package(arguments.folder, names)
    folder = shlex.quote(str(arguments.folder))
    print(f"{arguments.folder}: a package of {len(files)} files, described in its README.md. Next:")
    print(f"  pip install -e {folder}")
    print(f"  gem-core check {names.namespace}:Change-v0")
    print(
        f"  gem-core train {folder}/recipe.toml --trainer trl --profile tiny "
        f"--run runs/{names.module}"
    )
    return 0
