"""Everything that writes REPORT.md, its figures and model cards, from committed records.

May import: every room but `envs` and trainers.
"""
