"""The record of each letter, and the index of what was sent. Not here: sending (`transports`)."""
