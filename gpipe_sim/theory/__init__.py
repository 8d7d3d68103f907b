"""What papers say: closed forms and printed tables, each with its citation; no metric calls them."""
