"""One file per kind of model source; `load.py` chooses among them."""
