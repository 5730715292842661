"""What starts, follows and forecasts runs."""
