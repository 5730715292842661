"""The schema's migrations and the queries, as SQL."""
