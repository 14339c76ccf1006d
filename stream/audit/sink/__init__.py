"""`coach audit sink`: the audit topic -> an archive. Not here: the files themselves (`archive`)."""
