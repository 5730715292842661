"""Results of jobs in Postgres: writing, reading, selection, audit and retention."""
