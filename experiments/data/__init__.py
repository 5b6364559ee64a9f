"""The data sets of the ladder: their recipes and their collection.

May import: every room.
"""
