"""Live sessions: questions about a video that is still arriving."""
