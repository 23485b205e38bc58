"""Controls: players that a trained policy has to surpass before it can be said to have learned.

players.py  the policies: random legal actions, and a fixed sequence that sees no observation
blind.py    fits the best constant answer and the best sequence to training tasks
play.py     plays every control on a recipe's evaluation tasks and writes ``controls.json``
file.py     reads and writes that file: the outcome of every task, by control
"""
