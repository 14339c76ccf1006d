"""The recommendation, the audit body, their size. Not here: re-checking them (`audit/verify`)."""
