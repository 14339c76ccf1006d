"""Recommendations -> letters: who is told, in which words, by which way, and the record of it."""
