"""The target of each tier, shadow models, the proof that there is none. Not here: how it is recorded (`record`)."""
