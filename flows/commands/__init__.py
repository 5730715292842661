"""The commands themselves; `flows.cli` declares their names and options."""
