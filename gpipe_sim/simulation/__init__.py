"""Costs, the two clocks, timelines, metrics of a timeline, and what is wrong with an order."""
