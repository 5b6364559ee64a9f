"""Scoring: the quantities of a tick, its reward, the end of an episode, and the metrics.

May import: `common`, `envs.racing.sim`.
"""
