"""coach-stream: feasible, model-verified recourse for declined credit decisions, with an exact audit record."""
