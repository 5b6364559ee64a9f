"""The torch code that every trainer uses: devices, checkpoints, layers.

May import: `common`. Nothing that runs without torch may import it.
"""
