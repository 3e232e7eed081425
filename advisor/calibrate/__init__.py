"""Short timings on the machine at hand: a designed set of operators in, its own efficiencies out."""
