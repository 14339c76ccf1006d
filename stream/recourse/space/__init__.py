"""Where one person can go, and what margins do on the way. Not here: which target is best (`search`)."""
