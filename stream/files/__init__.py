"""Rows, decisions and answers in files: CSV, Parquet, JSONL and Avro. Not here: records on a topic (`wire`)."""
