"""Dead letters: listed, shown, and redriven to the topic they came from."""
