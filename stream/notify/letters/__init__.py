"""A recommendation -> the text of a letter. Not here: how it is sent (`transports`)."""
