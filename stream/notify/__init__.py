"""Recommendations -> letters: who gets one, in which words, by which channel, and its record. Not here: the recommendation."""
