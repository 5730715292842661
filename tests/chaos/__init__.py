"""Chaos tests: inject faults at random moments of real runs, and check that nothing is lost (`make chaos`)."""
