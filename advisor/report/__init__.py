"""Records in, text out: one file a format. No room but the records is read."""
