"""What a session computes itself, beside machine code: strings, sequences, optionals and maps. See docs/adr/0028."""
