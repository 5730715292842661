"""Small clips of every container, codec and structure, made by PyAV alone."""
