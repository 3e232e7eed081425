"""From measured steps to efficiencies: what prediction's formulas leave open is fitted here and nowhere else."""
