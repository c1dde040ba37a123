"""The formats of -o FILE, each a module that is called like the file's ending: its ``write`` makes the file.

``write(path, folder, evaluator, options)`` takes a finished run's folder. A module may have a ``check(path)`` that
raises UsageError for what cannot be written here, before anything is computed.
"""
