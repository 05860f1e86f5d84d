"""Sessions: models that compile themselves for the calls they get. `glowpy.InferenceSession` is in `session`."""
