"""Writes REPORT.md, its figures and the model cards from committed records.

May import: common, the evaluator's ranges, rssm's checkpoints. scripts/report.py adds the sections
on campaigns.
"""
