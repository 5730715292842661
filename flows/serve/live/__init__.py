"""Live sessions over a WebSocket, and their page."""
