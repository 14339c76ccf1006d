"""Kafka and Redis without installation, each in a process of its own. Not here: the story (`demo/story`)."""
