"""One module a family of operators; importing one registers its declarations."""
