"""Frozen contracts and values: no I/O, no event loop, no logging."""
