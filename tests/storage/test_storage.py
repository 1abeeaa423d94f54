"""Files with checksums: what was altered is told, whatever stops a write, and no link leads outside."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import Folder, disk


class Stopped(BaseException):
    """What nothing catches, as nothing catches ``kill -9``."""


def stop_at(patch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    """Let the ``call``-th change of the disk, from 0, and after ``Stopped`` all others fail."""
    made: list[str] = []

    def watched(name: str, original: Callable[..., None]) -> Callable[..., None]:
        def change(*arguments: object) -> None:
            made.append(name)
            if len(made) == call + 1 or (len(made) > call and isinstance(error, Stopped)):
                raise error
            original(*arguments)

        return change

    for name in ("write", "sync", "replace", "unlink", "make_folder", "remove_folder"):
        patch.setattr(disk, name, watched(name, getattr(disk, name)))


def test_what_was_written_is_read_and_what_was_altered_is_told(tmp_path):
    Folder(tmp_path).put({"a": b"1", "below/b": b"2"})
    assert Folder(tmp_path).read_bytes("below/b") == b"2"
    (tmp_path / "below" / "b").write_bytes(b"3")
    with pytest.raises(InputError, match=r"below/b: altered or damaged since it was written"):
        Folder(tmp_path).read_bytes("below/b")
    (tmp_path / "below" / "b").write_bytes(b"2")
    folder = Folder(tmp_path)
    folder.put({"a": b"4"})
    folder.settle()
    (tmp_path / "below" / "b").unlink()
    Folder(tmp_path).verify("a")  # the others are not looked at
    for look in (Folder(tmp_path).read_bytes, Folder(tmp_path).holds, lambda _: Folder(tmp_path).verify("*")):
        with pytest.raises(InputError, match=r"below/b: gone since it was written"):
            look("below/b")
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(InputError, match=r"c: was not written by vnetsim"):
        Folder(tmp_path).read_bytes("c")


def test_any_altered_byte_of_the_record_is_told(tmp_path):
    Folder(tmp_path).put({"a": b"1"})
    whole = (tmp_path / RECORD).read_bytes()
    for place in range(len(whole)):
        for spoilt in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            (tmp_path / RECORD).write_bytes(spoilt)
            with pytest.raises(InputError, match=r"checksums\.sha256: altered or cut"):
                Folder(tmp_path).read_bytes("a")


def test_sha256sum_checks_the_folder(tmp_path):
    if shutil.which("sha256sum") is None:
        pytest.skip("sha256sum is not here")
    folder = Folder(tmp_path)
    folder.put({"a": b"1", "b\\c": b"2", "gone": b"3"})
    folder.put({"a": b"4"}, remove=["gone"])
    folder.settle()
    done = subprocess.run(["sha256sum", "--check", "--strict", RECORD], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b": OK") == 2


@pytest.mark.parametrize("error", [Stopped(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_whatever_stops_a_write_leaves_old_or_new(error, tmp_path):
    old, new = {"a": b"1", "b": b"2", "x": b"0"}, {"a": b"3", "b": b"4"}
    call, stopped = 0, True
    while stopped:
        path = tmp_path / str(call)
        folder = Folder(path)
        folder.put(old)
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, call, error)
            try:
                folder.put(new, remove=["x"])
                stopped = False
            except (Stopped, RunError):
                stopped = True
        for reader in (Folder(path), folder):
            found = {name: reader.read_bytes(name) for name in old if reader.holds(name)}
            assert all(found[name] in {old[name], new[name]} for name in new)
            if found["b"] == new["b"]:
                assert found["a"] == new["a"], "the last file fits the others"
            assert found["b"] == new["b"] or "x" in found
        (path / "a").write_bytes(b"5")
        with pytest.raises(InputError, match="altered"):
            Folder(path).read_bytes("a")
        last = Folder(path)
        last.put(new, remove=["x"])
        last.remove_leftovers()
        last.settle()
        last.verify("*")
        assert sorted(entry.name for entry in path.iterdir()) == ["a", "b", RECORD]
        call += 1
    assert call > 10


def test_who_goes_on_after_a_failed_write_knows_what_it_left(tmp_path):
    """A run whose checkpoint fails on a full disk still writes how it ended; what was placed before stays readable."""
    folder = Folder(tmp_path)
    folder.put({"a": b"1", "b": b"2"})
    with pytest.MonkeyPatch.context() as patch:
        replace, placed = disk.replace, []

        def full(source: Path, target: Path) -> None:
            if target.name == "b":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            placed.append(target.name)
            replace(source, target)

        patch.setattr(disk, "replace", full)
        with pytest.raises(RunError, match="b: cannot write: No space left on device"):
            folder.put({"a": b"3", "b": b"4"})
    assert placed == [RECORD, "a"]
    assert {path.name for path in tmp_path.iterdir()} == {RECORD, "a", "b"}
    folder.put({"c": b"5"})
    assert [Folder(tmp_path).read_bytes(name) for name in "abc"] == [b"3", b"2", b"5"]


def test_nothing_is_written_or_removed_through_a_link(tmp_path):
    outside, inside = tmp_path / "mymodels", tmp_path / "run"
    outside.mkdir()
    (outside / "model").write_bytes(b"dear")
    inside.mkdir()
    (inside / "checkpoint").symlink_to(outside)
    (inside / "a").symlink_to(outside / "model")
    folder = Folder(inside)
    for change in (
        lambda: folder.put({"checkpoint/model": b"x"}),
        lambda: folder.write_output("checkpoint/model", b"x"),
        lambda: folder.remove("checkpoint/model"),
    ):
        with pytest.raises(InputError, match=r"run/checkpoint: a symbolic link; vnetsim writes and removes nothing"):
            change()
    folder.write_output("a", b"x")
    folder.remove("checkpoint")
    assert (outside / "model").read_bytes() == b"dear"
    assert not (inside / "a").is_symlink()
    for name in ("../b", "/tmp/b", "a/../../b"):
        with pytest.raises(InputError, match="leads outside"):
            folder.write_output(name, b"x")


def test_a_folder_that_was_removed_while_it_was_written_to_is_noticed(tmp_path):
    """It was made anew with what came last, and all was refused when the run was over."""
    folder = Folder(tmp_path / "run")
    folder.put({"a": b"1"})
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match=r"run: removed while it was written to; what it held is gone\.$"):
        folder.put({"b": b"2"})
    assert not (tmp_path / "run").exists()


def test_only_what_vnetsim_wrote_is_cleared(tmp_path):
    folder = Folder(tmp_path)
    folder.put({"a": b"1", "below/b": b"2"})
    (tmp_path / ".a.0123abcd.tmp").write_text("half")
    (tmp_path / "sumo").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("dear")
    folder.clear()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["mine", "mine/thesis"]
