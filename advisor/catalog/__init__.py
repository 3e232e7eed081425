"""Reads profile and price files into one `Catalog`: see `overlay.load_catalog`.

The catalog rejects offers with these codes: `no-device-profile` (an accelerator without a profile), `fractional-gpu` (a
part of a GPU), `unknown-cpu` (no GPU, and a CPU without a profile), `incomplete-machine` (no GPU, and vCPUs or memory
unknown).
"""
