"""What an operator costs: one file per family of operators, shapes and attributes in, FLOP and bytes out. No torch."""
