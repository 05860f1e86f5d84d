"""The operators that a session computes itself: strings, sequences, optionals and maps. See docs/adr/0028."""
