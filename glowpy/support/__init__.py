"""The bottom layer: errors, source locations, rule tables, unique names and the text reader."""
