"""Pure parsers of the scripts people already have, to job specs.

`reading.import_text` reads any of them, `imported.Imported` is its answer; `kinds.is_foreign` tells
such a file from a job file of our own. Nothing is imported here: a job file of our own needs none
of the readers.
"""
