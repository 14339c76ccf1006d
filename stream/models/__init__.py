"""The published models: announced on the models topic, read by everyone, their bundles kept open on a shelf."""
