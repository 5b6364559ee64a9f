"""The locked ruler: what happened in a tick, what it pays, what ends an episode, and the metrics.

May import: `common`, `envs.racing.sim`.
"""
