"""Finished training runs, averaged and compared; the ablation study; training under a stopwatch.

May import: every room.
"""
