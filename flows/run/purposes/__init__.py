"""What runs are for: answering questions about videos, or describing videos."""
