"""The world: tracks, the car, and progress along the road. It has no pixels and no reward.

May import: `common`.
"""
