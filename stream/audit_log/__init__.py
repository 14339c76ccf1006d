"""Reads audit records back, from a file or from the topic, and re-checks every one of them."""
