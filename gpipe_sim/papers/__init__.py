"""Closed forms and printed tables, each with its citation."""
