"""What every verl process loads: by the entry point ``verl.plugins`` and by ``external_lib``.

verl swallows what an entry point raises, so it is printed here; ``external_lib`` raises it, and
`gem_verl.sampler` asserts the registration before the first step.
"""

import traceback

try:
    import gem_verl.advantages
    import gem_verl.critic

    gem_verl.advantages.install()
    gem_verl.critic.install()
except Exception:
    print("gem-core could not be loaded into verl:\n" + traceback.format_exc(), flush=True)
    raise
