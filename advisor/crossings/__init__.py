"""Costs of a CPU and of a GPU over some quantity in, the points where the cheaper one changes out."""
