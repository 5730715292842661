"""Trials of live sessions: faults at random moments while several clients talk to the service."""
