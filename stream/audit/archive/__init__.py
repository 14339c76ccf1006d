"""Audit records in Parquet files: layout, ranges, writing, reading. Not here: reading Kafka (`sink`)."""
