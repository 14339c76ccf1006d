"""Records as bytes, in Avro and JSON, and how a topic frames them. Not here: files (`files`), Kafka and Redis (`runtime`)."""
