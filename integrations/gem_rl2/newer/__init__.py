"""RL2's newer API: its trainer, its hook for episodes, its configuration's names.

It has not been released. What it shares with 0.0.2 (playing, advantages, metrics) is in the parent
package.
"""
