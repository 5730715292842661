"""Tables, the version of the schema, and temporary tables."""
