"""What the commands do; `flows.cli` only names them."""
