"""Migrations of the schema, roles and queries, in SQL."""
