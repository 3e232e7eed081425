"""The devices at hand as JSON: the whole record, in base units."""

import json

from advisor.records.machine import Inventory
from advisor.report.as_json import to_plain


def render_inventory_json(inventory: Inventory) -> str:
    """What `advise devices` shows and more; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(inventory), indent=2, allow_nan=False) + "\n"
