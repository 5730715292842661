"""The commands that set up, schedule and maintain."""
