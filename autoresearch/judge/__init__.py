"""The gates, the evidence that they weigh, and how often they are wrong.

May import: `common` and all of `autoresearch` but `report`.
"""
