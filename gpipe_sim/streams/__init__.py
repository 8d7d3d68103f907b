"""Pipelines without a flush."""
