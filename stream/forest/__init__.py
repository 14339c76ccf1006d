"""What the model computes: a trained ensemble as flat arrays, walked bit for bit as its own library does."""
