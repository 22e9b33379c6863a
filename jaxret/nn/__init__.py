"""Networks as pure functions over plain dicts, and the real weights that go into them."""
