"""Published models: announced on the models topic, cached in Redis, kept open. Not here: bundles on disk (`bundle`)."""
