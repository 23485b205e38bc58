"""What verl's processes with a model load where ``sampling.support`` is ``drawn``.

The name in ``external_lib`` is also what tells an engine to restrict its logits.
"""

import sys

import gem_verl.worker_plugin

if "verl.workers.engine_workers" in sys.modules:
    import gem_verl.support

    gem_verl.support.install()
