"""From recommendations to letters: who is told, how, once a decision, and the record of what was sent."""
