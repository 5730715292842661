"""The outside world: errors, settings, object store, database, embedded services. Knows no videos."""
