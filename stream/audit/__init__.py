"""Audit records kept and re-checked. Not here: how a record is made (`recourse/record`)."""
