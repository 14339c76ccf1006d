"""What runs: settings, the Faust app, the model table, dead letters."""
