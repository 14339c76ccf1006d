"""What may change: features.toml, policy.toml, units, scale, effort. Not here: any one person (`space`)."""
