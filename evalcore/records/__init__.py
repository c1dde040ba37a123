"""Reading records: finding inputs, cutting them at record boundaries, and decoding a cut piece.

`inputs` finds and spools, `cut` decides where a chunk ends, `batch` decodes one chunk.
"""

from evalcore.records.batch import Batch
from evalcore.records.cut import Cutter, Span, record_ends
from evalcore.records.inputs import Source, discover, spool

__all__ = ["Batch", "Cutter", "Source", "Span", "discover", "record_ends", "spool"]
