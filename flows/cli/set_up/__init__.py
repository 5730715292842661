"""The commands that set up an installation, try it, and start and stop its services."""
