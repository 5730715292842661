"""The same jobs done by Reelabel and by other tools, each in an environment of its own."""
