"""A topic or an archive, frozen and cut into chunks. Not here: what is made of a record (`judge`)."""
