"""Charts: one geometry, drawn as SVG and by matplotlib; and timelines as text."""
