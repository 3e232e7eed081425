"""Two answers or two counts in, what changed between them out."""
