"""Plan an order from rules, recognise one, or move one to fewer devices."""
