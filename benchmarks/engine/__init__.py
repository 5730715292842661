"""The engine alone: several questions about one video, and answers in words."""
