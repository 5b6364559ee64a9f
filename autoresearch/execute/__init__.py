"""Runs tasks as processes, here or on a cluster, and reads the files that they leave.

May import: `common`, `autoresearch.config` and `autoresearch.types`. It decides nothing.
"""
