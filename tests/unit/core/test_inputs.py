"""Finding inputs and unpacking them: the same bytes whatever they were packed in, or an error and no half file."""

from __future__ import annotations

import gzip
import io
import os
import sys
import time
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputError
from evalq.evalcore.records import inputs as spooling
from evalq.evalcore.records.inputs import (
    Source,
    discover,
    format_suffixes,
    needs_spool,
    read_columns,
    spool,
    stands_for,
)

PLAIN = b'{"a": 1}\n' * 3000 + b'{"b": "' + os.urandom(3000).hex().encode() + b'"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of inputs and other files."""
    for name in ("b.jsonl", "a.jsonl", "c.ndjson.gz", "d.jsonl.zst", "notes.txt", "e.jsonl.bak", "B.JSONL.x"):
        (tmp_path / name).write_bytes(b"{}\n")
    (tmp_path / "inner.jsonl").mkdir()
    (tmp_path / "inner.jsonl" / "f.jsonl").write_bytes(b"{}\n")
    return tmp_path


def names(sources: list[Source]) -> list[str]:
    return [source.name for source in sources]


def test_a_link_that_leads_to_itself_is_no_file(folder: Path) -> None:
    """Whatever the order of the entries, nothing raises, and the other files are there."""
    (folder / "ring.jsonl").symlink_to(folder / "ring.jsonl")
    (folder / "lost.jsonl").symlink_to(folder / "nowhere")
    found = {Path(path).name for path in stands_for(str(folder))} - {folder.name}
    assert found == {"b.jsonl", "a.jsonl", "c.ndjson.gz", "d.jsonl.zst", "notes.txt", "e.jsonl.bak", "B.JSONL.x"}
    assert names(discover([str(folder)], format_suffixes("jsonl"))) == ["a.jsonl", "b.jsonl", "c.ndjson", "d.jsonl"]


def test_a_folder_is_its_files_of_the_format_sorted(folder: Path) -> None:
    """Packed ones included and named without the packing; no other files, no folders inside."""
    sources = discover([str(folder)], format_suffixes("jsonl"))
    assert names(sources) == ["a.jsonl", "b.jsonl", "c.ndjson", "d.jsonl"]
    assert [source.path for source in sources] == [source.given for source in sources]
    assert [Path(source.path).name for source in sources][2:] == ["c.ndjson.gz", "d.jsonl.zst"]
    with pytest.raises(InputError, match=r"holds no file ending in \.csv"):
        discover([str(folder)], format_suffixes("csv"))


def test_thousands_of_inputs_may_have_one_name(tmp_path: Path) -> None:
    """Numbered in their order, also where a file has such a number as its own, in time that grows as they do."""
    for name in ("a.csv", "a.csv#3"):
        (tmp_path / name).touch()
    given = [str(tmp_path / "a.csv#3"), *[str(tmp_path / "a.csv")] * 8000]
    began = time.process_time()
    found = names(discover(given, ()))
    assert time.process_time() - began < 3.0
    assert found[:4] == ["a.csv#3", "a.csv", "a.csv#2", "a.csv#4"]
    assert found[-1] == "a.csv#8001"


def test_a_glob_is_sorted_and_matches_files_only(folder: Path) -> None:
    """Any suffix, since it was asked for; ** goes into folders; nothing matched is an error that says so."""
    assert names(discover([str(folder / "*.jsonl")], ())) == ["a.jsonl", "b.jsonl"]
    assert names(discover([str(folder / "**" / "*.jsonl")], ())) == ["a.jsonl", "b.jsonl", "f.jsonl"]
    with pytest.raises(InputError, match=r"\*\.tsv: no file matches"):
        discover([str(folder / "*.tsv")], ())


def test_a_missing_file_is_named(folder: Path) -> None:
    """The path as it was given, among whatever else is given."""
    with pytest.raises(InputError, match=r"nowhere\.jsonl: no such file"):
        discover([str(folder / "a.jsonl"), str(folder / "nowhere.jsonl")], ())


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    """What exists is not expanded."""
    (tmp_path / "run[1].csv").write_bytes(b"")
    assert names(discover([str(tmp_path / "run[1].csv")], ())) == ["run[1].csv"]


def test_inputs_keep_the_order_they_were_given_in(folder: Path) -> None:
    """Only what one argument stands for is sorted."""
    given_paths = [str(folder / "d.jsonl.zst"), "-", str(folder / "a.jsonl")]
    assert names(discover(given_paths, ())) == ["d.jsonl", "stdin", "a.jsonl"]


@given(st.lists(st.sampled_from(["x/a.csv", "y/a.csv", "x/a.csv#2", "y/a.csv.gz", "x/a.csv#2#2", "y/b"]), max_size=8))
@settings(deadline=None, max_examples=60)
def test_names_are_unique_in_a_run(tmp_path_factory: pytest.TempPathFactory, chosen: list[str]) -> None:
    """Also for a file given twice, for equal base names, and for a file whose own name ends in "#2"."""
    folder = tmp_path_factory.getbasetemp() / "names"
    for name in chosen:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    found = names(discover([str(folder / name) for name in chosen], ()))
    assert len(set(found)) == len(found) == len(chosen)
    if chosen:
        assert found[0] == Path(chosen[0]).name.removesuffix(".gz")


def test_a_repeated_base_name_gets_a_number(tmp_path: Path) -> None:
    """The second one "#2", the third "#3"."""
    for name in ("x", "y", "z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").touch()
    assert names(discover([str(tmp_path / "*" / "a.csv")], ())) == ["a.csv", "a.csv#2", "a.csv#3"]


def packed(how: str, data: bytes) -> bytes:
    """``data`` as gzip or zstd, in one member or frame or in two, with or without a content size."""
    half = len(data) // 2
    if how == "gz":
        return gzip.compress(data)
    if how == "gz2":
        return gzip.compress(data[:half]) + gzip.compress(data[half:])
    if how == "zst":
        return zstandard.ZstdCompressor().compress(data)
    if how == "zst2":
        return packed("zst", data[:half]) + packed("zst", data[half:])
    return zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data)


@pytest.mark.parametrize("how", ["gz", "gz2", "zst", "zst2", "zst-streamed"])
@pytest.mark.parametrize("data", [b"", b"a\n", PLAIN])
def test_a_packed_input_is_spooled_to_its_bytes(how: str, data: bytes, tmp_path: Path) -> None:
    """All members and frames; the source keeps its name and the path it was given."""
    path = tmp_path / f"in.jsonl.{how[:3].rstrip('2-')}"
    path.write_bytes(packed(how, data))
    (source,) = discover([str(path)], ())
    spooled = spool(source, tmp_path / "new" / "scratch")
    assert Path(spooled.path).read_bytes() == data
    assert (spooled.name, spooled.given) == ("in.jsonl", str(path))
    assert not needs_spool(spooled)
    assert [p.name for p in (tmp_path / "new" / "scratch").iterdir()] == ["in.jsonl"]


def test_standard_input_is_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes, not unpacked."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))
    (source,) = discover(["-"], ())
    assert Path(spool(source, tmp_path).path).read_bytes() == PLAIN


def test_a_plain_file_is_read_where_it_is(folder: Path) -> None:
    """Nothing is copied."""
    (source,) = discover([str(folder / "a.jsonl")], ())
    assert spool(source, folder / "scratch") is source
    assert not (folder / "scratch").exists()


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("how", ["gz", "gz2", "zst", "zst2", "zst-streamed"])
def test_damaged_packing_is_an_input_error_and_leaves_no_file(how: str, tmp_path: Path) -> None:
    """Cut off anywhere, not packed at all, or followed by something else: an error that names the file as given."""
    good = packed(how, PLAIN)
    cuts = {1, 3, 7, len(good) // 4, len(good) * 3 // 4, len(good) - 5, len(good) - 1}
    damaged = [good[:cut] for cut in sorted(cuts)] + [b"plain text\n", _flipped(good, 0), good + b"and more"]
    path = tmp_path / f"in.jsonl.{how[:3].rstrip('2-')}"
    for number, data in enumerate(damaged):
        path.write_bytes(data)
        with pytest.raises(InputError, match="cannot be unpacked") as caught:
            spool(discover([str(path)], ())[0], tmp_path / "scratch")
        assert caught.value.faults[0][0] == str(path), number
        assert list((tmp_path / "scratch").iterdir()) == [], number


@pytest.mark.parametrize("how", ["gz", "zst-streamed"])
def test_a_flipped_byte_never_changes_the_data_unseen(how: str, tmp_path: Path) -> None:
    """With a checksum in the file, what is spooled is right or there is an error."""
    good = packed(how, PLAIN)
    path = tmp_path / f"in.jsonl.{how[:3].rstrip('-')}"
    for at in range(10, len(good), len(good) // 40):
        path.write_bytes(_flipped(good, at))
        try:
            spooled = spool(discover([str(path)], ())[0], tmp_path / "scratch")
        except InputError:
            continue
        assert Path(spooled.path).read_bytes() == PLAIN


def plain_line(name: str, data: bytes) -> bytes:
    """A file as a line: its name and size."""
    return f"{name} {len(data)}".encode()


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A folder of a record a file, one of them packed and one with a byte order mark."""
    folder = tmp_path / "single"
    folder.mkdir()
    (folder / "b.json").write_bytes(b"\xef\xbb\xbf{}")
    (folder / "B.json.gz").write_bytes(gzip.compress(b"[1,\n2]"))
    (folder / "a.json").write_bytes(b"")
    (folder / "a.txt").write_bytes(b"not asked for")
    return folder


def test_a_folder_of_gathered_files_is_one_input(single: Path, tmp_path: Path) -> None:
    """A line a file in the order of their names, unpacked and without a byte order mark; the input is the folder."""
    (source,) = discover([str(single)], (".jsonl",), (".json",))
    assert (source.name, source.given, source.path) == ("single", str(single), str(single))
    assert source.files == [str(single / name) for name in ("B.json.gz", "a.json", "b.json")]
    spooled = spool(source, tmp_path / "scratch", plain_line)
    assert Path(spooled.path).read_bytes() == b"B.json 6\na.json 0\nb.json 2\n"
    assert spooled.members == ("B.json", "a.json", "b.json")
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["single"]


def test_a_gathered_folder_has_a_name_that_no_machine_changes(
    single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its base name, with a number when it is not the first; "." and ".." are no names."""
    monkeypatch.chdir(single)
    given_paths = [str(single), f"{single}/", ".", "..", str(tmp_path / "x" / ".." / "single")]
    (tmp_path / "x").mkdir()
    (tmp_path / "c.json").touch()
    found = names(discover(given_paths, (), (".json",)))
    assert found == ["single", "single#2", "folder", "folder#2", "single#3"]


def test_a_folder_of_both_kinds_is_ambiguous(single: Path) -> None:
    """Neither kind is passed over in silence; an evaluator that gathers nothing sees one kind only."""
    (single / "all.jsonl").touch()
    with pytest.raises(InputError, match=r"single: the folder holds all\.jsonl and B\.json\.gz: name the files"):
        discover([str(single)], (".jsonl",), (".json",))
    assert names(discover([str(single)], (".jsonl",))) == ["all.jsonl"]
    with pytest.raises(InputError, match=r"holds no file ending in \.csv, \.yaml"):
        discover([str(single)], (".csv",), (".yaml",))


def test_a_member_with_a_name_that_is_no_text_is_still_there(tmp_path: Path) -> None:
    """Bytes outside UTF-8 are shown by number, for reports are UTF-8."""
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")).write_bytes(b"{}")
    (source,) = discover([str(tmp_path)], (), (".json",))
    spooled = spool(source, tmp_path / "scratch", plain_line)
    assert spooled.members == ("\\xff.json",)
    assert Path(spooled.path).read_bytes() == b"\\xff.json 2\n"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.json.gz", b"not packed", "an input cannot be unpacked"),
        ("x.json", b" " * ((1 << 20) + 1), "a record longer than 1 MiB"),
        ("x.json", b" " * (1 << 20), "a record longer than 1 MiB"),
    ],
)
def test_a_member_that_cannot_be_gathered_is_an_input_error(
    name: str, data: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged, or too long as a file or as a line: the file is named, and nothing is left."""
    monkeypatch.setattr(spooling, "MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(data)
    (source,) = discover([str(tmp_path)], (), (".json",))
    with pytest.raises(InputError) as caught:
        spool(source, tmp_path / "scratch", lambda name, data: data + b"12345")
    assert said in str(caught.value)
    assert caught.value.faults[0][0] == str(tmp_path / name)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_member_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The system's reason, with the file's path: it was there when the folder was listed."""
    (tmp_path / "x.json").touch()
    (source,) = discover([str(tmp_path)], (), (".json",))
    (tmp_path / "x.json").unlink()
    with pytest.raises(InputError, match=r"x\.json: No such file"):
        spool(source, tmp_path / "scratch", plain_line)


@pytest.mark.parametrize("line", [b"", b"  ", b"a\nb"])
def test_a_gather_that_breaks_its_promise_is_found(line: bytes, single: Path, tmp_path: Path) -> None:
    """No line or several would call every later record by another's file."""
    (source,) = discover([str(single)], (), (".json",))
    with pytest.raises(ValueError, match=r"B\.json\.gz: gathered to no line, or to several"):
        spool(source, tmp_path / "scratch", lambda name, data: line)


def test_a_header_gives_its_columns() -> None:
    """All of them, in order, more than the required ones too."""
    assert read_columns(b'a,"b\nb",c\r\n', "t.csv", ("c", "a")) == ("a", "b\nb", "c")
    assert read_columns(b"a,x,x\n", "t.csv", ("a",)) == ("a", "x", "x")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"a,x\n", "missing columns: b, c"),
        (b"a,b\n", "missing column: c"),
        (b"a;b;c\n", r"the header is one field, 'a;b;c': is the delimiter a comma\?"),
        (b"\n", "missing columns: a, b, c"),
        (b"a,b,c,b,c,x,x\n", "repeated column: b, c$"),
        (b"a,b,\xff\n", "not a CSV in UTF-8"),
        (b"a\rb,c\n", "not a CSV in UTF-8"),
    ],
)
def test_a_wrong_header_says_what_is_wrong(header: bytes, said: str) -> None:
    """On line 1 of the file: every missing or repeated column by name."""
    with pytest.raises(InputError, match=said) as caught:
        read_columns(header, "t.csv", ("a", "b", "c"))
    assert caught.value.faults[0][0] == "t.csv:1"
