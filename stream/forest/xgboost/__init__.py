"""An XGBoost model file -> `Forest`, and its link. Not here: walking the trees (`forest/walk`)."""
