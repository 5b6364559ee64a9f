"""One way from the state of the world to the frame that a policy sees: camera, texture, sprites.

May import: `common`, `envs.racing.sim`.
"""
