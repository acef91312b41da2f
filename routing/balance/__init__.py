"""Which replica serves a request: pure, with time and randomness passed in."""
