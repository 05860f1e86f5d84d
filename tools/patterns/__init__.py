"""Random networks around what passes and strategies look for, compared between runtimes."""
