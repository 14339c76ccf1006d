"""Records framed for a schema registry, and its subjects. Not here: Avro itself (`wire/avro_records`)."""
