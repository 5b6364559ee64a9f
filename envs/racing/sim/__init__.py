"""The world: tracks, the car, and progress along the road. It knows no pixels and no reward.

May import: `common`.
"""
