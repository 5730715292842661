"""Records live sessions, reads them, and replays them."""
