"""Opens two vectors on Ray, closes one, plays the other; prints whether the cluster is there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ray

from gem_core.env.spec import EnvSpec
from gem_core.execution.vector import make_vec

FAST = EnvSpec("vec:Fast-v0", "vec_envs:Fast")


def main():
    one = make_vec(FAST, 2, backend="ray", workers=1)
    two = make_vec(FAST, 2, backend="ray", workers=1)
    print(one.reset(seed=3) == two.reset(seed=3))
    one.close()
    print(ray.is_initialized())
    print(len(two.step(["a", "b"]).obs) == 2)
    two.close()
    print(ray.is_initialized())


if __name__ == "__main__":
    main()
