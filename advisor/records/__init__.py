"""Every type that crosses a room: frozen, slotted, keyword-only dataclasses with no work in them."""
