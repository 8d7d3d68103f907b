"""What messages cost."""
