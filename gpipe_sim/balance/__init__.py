"""Where to cut a model."""
