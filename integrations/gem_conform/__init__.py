"""``gem-core conform``: whether a trainer's adapter keeps what gem-core promises of every trainer.

* `candidate`: the trainer under test, and its small runs;
* `checks`: the checks by name, and how they are run;
* `declared`, `trained`, `measured`: the checks themselves, by what they look at;
* `changes`: other values of every recipe key, derived from the recipe's types;
* `report`: Markdown and JSON.

The design is in docs/conformance.md.
"""
