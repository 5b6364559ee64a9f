"""A campaign from step to step: what it does next, and the ledger that remembers it.

May import: `common` and all of `autoresearch`.
"""
