"""The user's own step on the machine at hand: a model in, how long its step really takes out."""
