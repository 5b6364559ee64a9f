"""Shared parts of reinforcement learning: policies, action distributions, returns, scaling.

May import: `common`.
"""
