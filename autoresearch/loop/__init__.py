"""A campaign from step to step: what comes next, running it, and the ledger that holds it all.

May import: `common` and all of `autoresearch` but `autoresearch.report`.
"""
