"""The key of a run's chunks in its folder, for its owner's eyes alone (see `evalq.evalcore.records.digests`)."""

from __future__ import annotations

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_unlinked, write_atomic
from evalq.evalcore.records.digests import checked_key, new_key
from evalq.producer.folder.names import KEY
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["keep_key", "read_key"]

_OWNER_ALONE = 0o600
_MOST_BYTES = 1024


def keep_key(folder: RunFolder, key: str = "") -> str:
    """Write ``key`` (a new one where none is given) to the folder, on disk when this returns; returns it.

    Raises OSError.
    """
    key = key or new_key()
    write_atomic(folder.path / KEY, key.encode() + b"\n", mode=_OWNER_ALONE)
    return key


def read_key(folder: RunFolder) -> str:
    """The key that a run's chunks were planned with. Raises WireError that says what to do where there is none."""
    path = folder.path / KEY
    try:
        # Through no link: who may write in the folder could have another file of the user's taken for the key.
        with open_unlinked(path) as stream:
            return checked_key(stream.read(_MOST_BYTES).decode("ascii").strip())
    except PermissionError as error:
        whose = "only who began the run, or runs as root, can resume it"
        raise WireError(f"{path} cannot be read: {error.strerror}; {whose}") from error
    except (OSError, ValueError, WireError) as error:
        reason = "it is a symbolic link" if path.is_symlink() else getattr(error, "strerror", None) or error
        raise WireError(f"{path} is damaged: {reason}; put it back (from a backup), or start the run anew") from error
