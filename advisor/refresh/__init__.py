"""A provider's own price list in, its prices of today out: the only room that talks to the network.

`providers/` has one file for each provider, with `PROVIDER`, its name, and `fetch(client, wanted)`.
"""
