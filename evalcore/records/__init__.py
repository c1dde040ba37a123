"""Reading records: `inputs` finds, `spool` makes plain files, `cut` ends chunks, `batch` and `lines` decode one."""
