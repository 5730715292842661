"""One run: its request, plan, execution and result."""
