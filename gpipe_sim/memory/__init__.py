"""Bytes, before anything runs."""
