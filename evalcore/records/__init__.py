"""Reading records: `inputs` finds, `spool` makes plain files, `cut` ends chunks, `batch` decodes one."""
