"""What crosses a boundary as bytes: Avro and JSON records, the Redis leaf cache, client settings."""
