"""Fetches current prices from the providers' own price lists; the only package that uses the network.

`providers/` has one file per provider, with its name `PROVIDER` and `fetch(client, wanted)`.
"""
