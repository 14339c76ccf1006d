"""A published model on disk: built offline, probed against the owner library, opened by digest."""
