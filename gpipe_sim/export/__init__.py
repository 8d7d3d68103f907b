"""Schedules and timelines in and out: PyTorch's CSV, and steps that were measured and kept."""
