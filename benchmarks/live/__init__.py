"""Live sessions: the time to an answer by what the session has seen, long streams, and agreement with `classify`."""
