"""The target of each tier, shadow models, the proof of none. Not here: how it is written down (`record`)."""
