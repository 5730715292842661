"""Methods of scene detection."""
