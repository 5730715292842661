"""Live sessions over a WebSocket, what they leave behind, and their page."""
