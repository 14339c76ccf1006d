"""Dead letters: listed, shown, and sent back to where they came from once what they waited for is there."""
