"""The `coach` command: one file a command, no logic."""
