"""Defines every type that passes between packages: frozen, slotted, keyword-only dataclasses without logic."""
