"""The engine's process, and what the application needs to start it and to talk to it."""

# Of the messages in `protocol`. An application and an engine of different numbers do not understand each other.
PROTOCOL = 5
