"""Proof that extracted frames equal a full linear decode: conformance of intact files, fuzzing of damaged ones."""
