"""Topics, offsets, delivery, dead letters, commit order. Not here: what a record means (`wire`)."""
