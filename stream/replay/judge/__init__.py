"""One record -> its verdict. Not here: sums over a run (`report`)."""
