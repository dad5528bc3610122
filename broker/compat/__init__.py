"""Pure parsers of the scripts people already have, to job specs.

`import_text` reads any of them; `Imported` is its answer.
"""

from broker.compat.imported import Client, Imported, Kind
from broker.compat.notes import Level, Note
from broker.compat.reading import import_text, is_foreign

__all__ = ["Client", "Imported", "Kind", "Level", "Note", "import_text", "is_foreign"]
