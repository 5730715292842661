"""What ways of asking are worth: how right, how sure, at what cost, and how far that is chance."""
