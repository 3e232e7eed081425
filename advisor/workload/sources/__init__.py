"""Loads models, one file per kind of source; `load_source.py` chooses among them."""
