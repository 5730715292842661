"""`reelabel live`: a client of live sessions."""
