"""What one person can reach, and how margins change with each move. Not here: which target is best (`search`)."""
