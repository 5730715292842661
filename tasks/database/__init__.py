"""The tables, the schema's version, and temporary tables."""
