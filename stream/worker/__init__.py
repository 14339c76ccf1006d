"""The worker: decisions read, answered, written out and committed. Not here: settings, clients, retry (`runtime`), `models`."""
