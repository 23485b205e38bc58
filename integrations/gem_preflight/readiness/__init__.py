"""Whether a run of a trainer could start on this machine, and what fixes what is missing.

`facts` says what is looked at, `probe` looks, `software` and `hardware` are the checks; `on_gpu`
and `verdict` put them together. A check takes facts and returns problems, so that a test can state
a machine.
"""
