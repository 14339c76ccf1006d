"""Re-checks one audit body with nothing but the body. Pure. Not here: runs of records and archives (`audit`)."""
