"""Tools that substrate brings."""
