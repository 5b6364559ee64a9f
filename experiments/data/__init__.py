"""The data sets of the ladder: recipes, and the collection that follows them.

May import: every room.
"""
