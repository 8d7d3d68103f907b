"""A schedule run on real arrays, on simulated devices that share nothing, with a meter for bytes."""
