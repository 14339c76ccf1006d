"""Stands in the way of `sklearn`, which deployments do not have and which costs each process seconds to import."""

msg = "not there, as in the image"
raise ImportError(msg)
