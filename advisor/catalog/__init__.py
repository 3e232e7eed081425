"""Profile and price files in, one `Catalog` out: `load.load_catalog`.

Offers that the catalog rejects, by code: `no-device-profile` (an accelerator that no profile describes),
`fractional-gpu` (a part of a GPU), `unknown-cpu` (a machine without a GPU whose CPU has no profile),
`incomplete-machine` (a machine without a GPU whose vCPUs or memory are not known).
"""
