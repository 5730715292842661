"""`reelabel bench scale`: what ten million jobs take, without a video."""
