"""Tables, the version of the schema, backups and temporary tables."""
