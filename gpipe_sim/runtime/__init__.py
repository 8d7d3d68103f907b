"""Run a schedule on real arrays, on simulated devices that share nothing, and count the bytes they hold."""
