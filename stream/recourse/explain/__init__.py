"""Why the model said no: attribution, cutoff band, reasons. Not here: what to change (`search`)."""
