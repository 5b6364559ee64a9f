"""Proposes changes: by chance, by rules, by a model of past results, by a language model.

`brief.py` is the contract of all of them; `proposers.py` makes the one that a campaign names.
May import: `common`, `autoresearch.config` and `autoresearch.types`.
"""
