"""Historic decisions through the same answer, into topics of their own, with a report of what differs."""
