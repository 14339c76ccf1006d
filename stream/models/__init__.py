"""The published models: publishing them, the table of those on the models topic, and their bundles: in Redis, on disk and open. Not here: a bundle's files (`bundle`)."""
