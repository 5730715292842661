"""Test clips, made by PyAV alone: every container, codec and structure, hostile files, and longer footage."""
