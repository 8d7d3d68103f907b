"""Charts: their geometry once, painted as SVG, by matplotlib, and as text."""
