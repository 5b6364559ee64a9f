"""Who proposes changes: chance, rules, a model of past results, a language model.

May import: `common`, `autoresearch.config`.
"""
