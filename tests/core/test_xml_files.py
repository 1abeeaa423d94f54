"""XML files of users: read piece by piece, and every fault is one line."""

import gzip
from collections.abc import Mapping

import pytest

from vnetsim import xml_files
from vnetsim.errors import InputError
from vnetsim.xml_files import XmlFile

TEXT = '<?xml version="1.0"?>\n<a>\n<b x="1">hello</b>\n</a>\n'


@pytest.mark.parametrize("packed", [False, True])
def test_handlers_see_everything(packed, tmp_path):
    path = tmp_path / ("x.xml.gz" if packed else "x.xml")
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    seen: list[object] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        seen.append((name, dict(attributes), file.where))

    file = XmlFile(path, start, end=seen.append, text=seen.append)
    file.read()
    assert [what for what in seen if what != "\n"] == [
        ("a", {}, f"{path}:2"),
        ("b", {"x": "1"}, f"{path}:3"),
        "hello",
        "b",
        "a",
    ]


FAULTS: dict[str, tuple[str, bytes | None, str]] = {
    "missing": ("x.xml", None, r"x\.xml: no such file\.$"),
    "empty": ("x.xml", b"", r"x\.xml:1: not well-formed XML: no element found"),
    "wrong": ("x.xml", b"<a>\n<b></a>", r"x\.xml:2: not well-formed XML: mismatched tag\.$"),
    "cut off": ("x.xml", b"<a>\n", r"x\.xml:2: .* \(the file seems cut off\)\.$"),
    "gzip cut off": ("x.gz", gzip.compress(TEXT.encode())[:-9], r"x\.gz: damaged or cut off in the mi"),
    "no gzip": ("x.gz", TEXT.encode(), r"x\.gz: damaged or cut off in the middle"),
    "encoding": ("x.xml", b'<?xml version="1.0" encoding="ETF-8"?><a/>', "ETF-8; write the file in UTF-8"),
    "entity": ("x.xml", b'<!DOCTYPE a\n[<!ENTITY e "x">]><a/>', r"x\.xml:2: the file declares XML entit"),
}


@pytest.mark.parametrize(("name", "content", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_line(name, content, words, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        XmlFile(tmp_path / name).read()
    assert "\n" not in str(caught.value)


def test_a_folder_is_unreadable(tmp_path):
    with pytest.raises(InputError, match="unreadable: Is a directory"):
        XmlFile(tmp_path).read()


def test_what_comes_before_a_fault_is_seen_first(tmp_path, monkeypatch):
    monkeypatch.setattr(xml_files, "_CHUNK_BYTES", 8)
    (tmp_path / "x.xml").write_text("<a><b/><c/><d/></a></a>")
    seen: list[str] = []
    growth: list[int] = []
    pieces = XmlFile(tmp_path / "x.xml", lambda name, _: seen.append(name)).pieces()
    with pytest.raises(InputError, match="not well-formed"):
        growth.extend(len(seen) for _ in pieces)
    assert seen == ["a", "b", "c", "d"]
    assert growth[0] < 4
    assert growth[-1] == 4
