"""Reading records: `inputs` finds and spools, `cut` decides where a chunk ends, `batch` decodes one chunk."""
