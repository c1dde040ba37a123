"""Reading records: `inputs` finds files, `layouts` reads other layouts, `cut` ends chunks, `batch` decodes one."""
