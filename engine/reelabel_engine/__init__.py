"""The engine's process, and what the application needs to start it and to talk to it."""
