"""One way from the state of the world to a frame: camera, track texture, sprites.

May import: `common`, `envs.racing.sim`.
"""
