"""substrate."""
