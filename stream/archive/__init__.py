"""How stored audit records lie in files, and how they are read: Parquet archive, JSONL, topic."""
