"""The design card: what a schedule means, its clock, and a training step on simulated devices."""
