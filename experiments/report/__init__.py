"""Everything that writes REPORT.md, its figures and model cards, from committed records.

May import: common, the evaluator's ranges, rssm's checkpoints. Joined with the campaigns' sections
in scripts/report.py.
"""
