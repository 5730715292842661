"""The engine alone: its settings, and several questions about one video."""
