"""Shadow models of a bundle: trained or given, checked, stored. Not here: the search (`recourse/search`)."""
