"""Chinese words: which ideographs continue a word in jieba's dictionary."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus import chinese
from bertmill.corpus.build import build_corpus, make_shard
from bertmill.errors import UsageError
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS
from bertmill.text.wordpiece import WordPiece

CHINESE = WordPiece(
    {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, *"我们在北京大学图书馆，t恤", "ok"])}
)


def test_ideographs_inside_a_word_of_jieba_do_not_begin_a_word() -> None:
    text = "我们在图书馆，北京大学T恤ok"  # 我们 在 图书馆 ， 北京大学 T恤 ok
    shard, _ = make_shard(CHINESE, text + "\n\n", chinese_words=True)
    plain, _ = make_shard(CHINESE, text + "\n\n", chinese_words=False)
    assert shard.pieces[:].tolist() == plain.pieces[:].tolist()
    begins = shard.begins_word(0, shard.num_pieces).tolist()
    assert [int(flag) for flag in begins] == [1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1]
    assert plain.begins_word(0, plain.num_pieces).all()


@given(st.text(alphabet="我们在北京大学图书馆 aT1.，𠀀é\u0301", max_size=30))
def test_only_ideographs_continue_a_word(text: str) -> None:
    continues = chinese.goes_on_word(text)
    assert len(continues) == len(text)
    assert not continues[:1].any()
    assert all("\u4e00" <= text[index] <= "\U0002ffff" for index in np.flatnonzero(continues))
    assert not any(text[index - 1].isspace() for index in np.flatnonzero(continues))


def test_jieba_prints_nothing_and_leaves_no_files_behind(tmp_path: Path) -> None:
    script = "import bertmill.corpus.chinese as c; print(c.goes_on_word('北京').tolist())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, env=environment
    )
    assert (done.stdout, done.stderr) == ("[False, True]\n", "")
    assert not list(tmp_path.iterdir())


def test_the_error_without_jieba_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UsageError, match=r"pip install jieba"):
        build_corpus(
            [str(tmp_path / "a.txt")], BertTokenizer.from_pretrained("minilm"), tmp_path / "corpus", chinese_words=True
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
