"""The soak: everything runs on one machine for an hour; memory stays flat, and everything reconciles (`make soak`)."""
