"""Finding an order: planned from rules, recognised, or moved to fewer devices."""
