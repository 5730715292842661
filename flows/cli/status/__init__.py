"""`reelabel status`: the state of services, schedules and runs, and what needs attention."""
