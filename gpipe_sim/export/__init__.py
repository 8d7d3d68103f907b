"""Schedules to and from PyTorch's CSV, and measured steps that ship with the package."""
