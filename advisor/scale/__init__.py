"""Predicts steps that run on several GPUs, from the steps of one GPU and the links between them."""
