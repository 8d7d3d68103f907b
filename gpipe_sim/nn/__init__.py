"""A small neural network library in NumPy: every forward stands beside its gradients."""
