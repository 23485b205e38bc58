"""The CPU engine that all adapters and the evaluator share, and its sampling.

* `gem_core.policies.engine.philox`: a counter-based generator of random numbers;
* `gem_core.policies.engine.sampling`: seeded sampling from logits by that generator;
* `gem_core.policies.engine.kv_store`: keys and values of all sequences, as a cache of transformers;
* `gem_core.policies.engine.attention`: attention whose rows do not depend on the rest of the batch;
* `gem_core.policies.engine.first_calls`: the first call of each of MKL's functions, by one thread;
* `gem_core.policies.engine.slots`: which sequence is where in the store, and what can be reused;
* `gem_core.policies.engine.engine`: the engine; requests join and leave at any step;
* `gem_core.policies.engine.asynchronous`: the engine for an event loop.
"""

from __future__ import annotations
