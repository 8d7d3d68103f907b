"""Transformers, on arrays and on paper."""
