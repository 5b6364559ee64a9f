"""Averages and compares finished training runs, runs the ablation study, and times training.

May import: every room.
"""
