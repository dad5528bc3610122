"""Pure parsers of the scripts people already have, to job specs."""
