"""Machinery on top of the agents layer."""
