"""One GPU's steps and how several are linked in, the steps of all of them together out."""
