"""What verl's processes with a model load (``external_lib``): the plug-in, and more for workers.

Other processes have no training worker to extend, and are not made to load one.
"""

import sys

import gem_verl.plugin

_workers = sys.modules.get("verl.workers.engine_workers")
if _workers is not None:
    import gem_verl.rates
    import gem_verl.updates
    import gem_verl.weights

    gem_verl.rates.install(_workers.TrainingWorker)
    gem_verl.updates.install(_workers.TrainingWorker)
    gem_verl.weights.install()
