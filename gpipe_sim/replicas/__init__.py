"""Copies of a pipeline."""
