"""Levels of Boxoban, published ones or a user's, as instances of `bench puzzles`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopline.bench.errors import DataError
from loopline.bench.registry import load
from tests.bench.test_puzzles_bench import wanted

BOXOBAN = """; 7
##########
##########
##########
#### # ###
##  .  ###
## $@  ###
#   . $###
#  $.$ ###
##  .#####
##########
"""


def test_boxoban_levels_are_read_from_a_file_or_a_folder_of_files(tmp_path: Path) -> None:
    (tmp_path / "hard").mkdir()
    file = tmp_path / "hard" / "003.txt"
    file.write_text(BOXOBAN)
    for data, split in ((file, "boxoban"), (tmp_path, "boxoban/hard"), (tmp_path, "boxoban")):
        [item] = load("puzzles", wanted("sokoban", 5, split=split, data=data)).items
        assert item.id.endswith("003/7")
        assert "##########" in str(item.about["task"])


@pytest.mark.skipif("LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set")
def test_published_boxoban_levels_are_drawn_as_instances() -> None:
    dataset = load("puzzles", wanted("sokoban", 20, split="boxoban/unfiltered/test"))
    assert len(dataset.items) == 20
    assert dataset.available >= 1000
    assert all(item.id.startswith("puzzles/boxoban/unfiltered/test/") for item in dataset.items)
    assert str(os.environ["LOOPLINE_DATA"]) not in dataset.source


def test_missing_or_unreadable_levels_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no levels"):
        load("puzzles", wanted("sokoban", 2, split="boxoban/easy", data=tmp_path))
    (tmp_path / "1.txt").write_text("; 0\n####\n")
    with pytest.raises(DataError, match=r"1\.txt, line 1, level 0"):
        load("puzzles", wanted("sokoban", 2, split="boxoban", data=tmp_path))
    (tmp_path / "1.txt").write_text("; 0\n" + "#" * 10**6)
    with pytest.raises(DataError, match=r"1\.txt, line 1, level 0"):
        load("puzzles", wanted("sokoban", 2, split="boxoban", data=tmp_path))
    with (tmp_path / "1.txt").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match=r"1\.txt: 1,099,511,627,776 bytes .* split it"):
        load("puzzles", wanted("sokoban", 2, split="boxoban", data=tmp_path))
    (tmp_path / "1.txt").write_text(BOXOBAN + "\n" + BOXOBAN)
    with pytest.raises(DataError, match="a level's number twice"):
        load("puzzles", wanted("sokoban", 2, split="boxoban", data=tmp_path))
