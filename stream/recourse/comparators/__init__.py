"""Who was accepted: leaf matrix, ranking, distances to people. Not here: why a comparator differs (`explain`)."""
