"""Fits the coefficients of the prediction's formulas to measured steps."""
