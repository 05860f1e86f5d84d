"""Models of which a session computes a part itself: how they are split, and into what. See docs/adr/0028."""
