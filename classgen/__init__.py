"""classgen writes the classes, builders, C prototypes and reference pages of every operator from one declaration each."""
