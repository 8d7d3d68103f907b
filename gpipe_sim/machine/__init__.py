"""One action at a time."""
