"""The tallies of a run, and its report as text, JSON and a page. Not here: single records (`judge`)."""
