"""Settings of a model: sizes, limits, labels, and files of other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from bertmill import BertConfig
from bertmill.errors import IntegrityError, UsageError


def test_sizes_are_selected_by_name() -> None:
    config = BertConfig.of_size("mini", vocab_size=1000)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (4, 256, 4)
    assert (config.intermediate_size, config.vocab_size) == (1024, 1000)
    with pytest.raises(UsageError, match="did you mean tiny"):
        BertConfig.of_size("tinny")


def test_one_error_names_every_problem() -> None:
    with pytest.raises(UsageError) as caught:
        BertConfig(hidden_size=10**9, vocab_size=-1, hidden_act="swish", hidden_dropout_prob=1.5)
    for name in ("hidden_size", "vocab_size", "hidden_act", "hidden_dropout_prob"):
        assert name in str(caught.value)


def test_a_misspelled_field_is_an_error_although_other_unknown_settings_are_kept() -> None:
    with pytest.raises(UsageError, match=r"hiden_size is not a setting of BertConfig; did you mean hidden_size\?"):
        BertConfig(hiden_size=3)
    assert BertConfig(my_head="linear").my_head == "linear"


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_size": 100, "num_attention_heads": 3},
        {"hidden_size": "768"},
        {"hidden_size": 768.0},
        {"hidden_size": True},
        {"num_hidden_layers": 10**9},
        {"max_position_embeddings": 10**12},
        {"type_vocab_size": 0},
        {"layer_norm_eps": float("nan")},
        {"num_labels": 10**9},
        {"num_labels": 0},
        {"id2label": {"0": "a", "2": "b"}},
        {"id2label": {"0": "a", "1": "a"}},
        {"id2label": {"9" * 5000: "a"}},
        {"id2label": "positive"},
        {"pad_token_id": 30522},
        {"position_embedding_type": "relative_key"},
        {"model_type": "roberta"},
        {"tie_word_embeddings": False},
        {"pruned_heads": {"0": [1]}},
        {"add_cross_attention": True},
    ],
    ids=lambda settings: str(settings)[:40],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        BertConfig.from_dict(settings)


def test_a_field_can_be_assigned_and_is_validated() -> None:
    config = BertConfig()
    config.hidden_dropout_prob = 0.0
    config.num_labels = 3
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    with pytest.raises(UsageError, match="hidden_size is -1"):
        config.hidden_size = -1


def test_label_names_take_precedence_over_the_number_of_labels() -> None:
    config = BertConfig.from_dict({"num_labels": 5, "id2label": {"0": "bad", "1": "good"}})
    assert (config.num_labels, config.label2id) == (2, {"bad": 0, "good": 1})
    assert BertConfig.from_dict({"label2id": {"b": 1, "a": 0}}).id2label == {0: "a", 1: "b"}
    assert BertConfig.from_dict({"num_labels": 3}).num_labels == 3


def test_a_new_number_of_labels_resets_the_label_names() -> None:
    config = BertConfig(id2label={0: "bad", 1: "good"})
    assert config.with_settings(num_labels=2).id2label == {0: "bad", 1: "good"}
    assert config.with_settings(num_labels=3).id2label[0] == "LABEL_0"
    assert config.with_settings(label2id={"no": 0, "yes": 1}).id2label == {0: "no", 1: "yes"}


def test_hugging_face_reads_the_same_settings_from_our_file(tmp_path: Path) -> None:
    config = BertConfig.of_size("tiny", causal=True, id2label={0: "a", 1: "b", 2: "c"}, hidden_act="relu")
    config.save_pretrained(tmp_path)
    theirs = transformers.BertConfig.from_pretrained(tmp_path)
    assert (theirs.hidden_size, theirs.is_decoder, theirs.id2label) == (128, True, config.id2label)
    theirs.save_pretrained(tmp_path)
    back = BertConfig.from_pretrained(tmp_path)
    ours = {name: getattr(config, name) for name in BertConfig.model_fields}
    assert {name: getattr(back, name) for name in BertConfig.model_fields} == ours


def test_unknown_keys_are_kept_but_references_to_code_are_not() -> None:
    config = BertConfig.from_dict({"my_note": [1, 2], "auto_map": {"AutoModel": "evil.Model"}, "dtype": "float16"})
    assert config.to_dict()["my_note"] == [1, 2]
    assert "auto_map" not in config.to_dict()
    assert "dtype" not in config.to_dict()


def test_unknown_keywords_and_attributes_survive_a_round_trip_through_a_file(tmp_path: Path) -> None:
    config = BertConfig.of_size("tiny", num_extra=3, use_cache=True, is_decoder=False, bos_token_id=2)
    config.pooling = {"kind": "mean"}
    config.update({"num_labels": 3, "note": None})
    config.save_pretrained(tmp_path)
    back = BertConfig.from_pretrained(tmp_path)
    assert (back.num_extra, back.pooling, back.note, back.num_labels) == (3, {"kind": "mean"}, None, 3)
    assert (back.use_cache, back.is_decoder) == (True, False)
    assert (back.bos_token_id, back.eos_token_id, "eos_token_id" in back.to_dict()) == (2, None, False)
    assert back.to_dict() == config.to_dict() == json.loads(config.to_json_string())
    assert back.with_settings(num_extra=4).num_extra == 4


def test_a_config_of_transformers_is_converted() -> None:
    theirs = transformers.BertConfig(hidden_size=64, num_attention_heads=4, num_labels=3, my_note="kept")
    ours = BertConfig.of(theirs)
    assert (ours.hidden_size, ours.num_labels, ours.my_note) == (64, 3, "kept")
    assert BertConfig.of(ours) is ours
    with pytest.raises(UsageError, match="config must be a BertConfig, not int"):
        BertConfig.of(3)
    with pytest.raises(UsageError, match="add_cross_attention is True"):
        BertConfig.of(transformers.BertConfig(is_decoder=True, add_cross_attention=True))


@pytest.mark.parametrize("name", ["add_cross_attention", "is_encoder_decoder"])
def test_an_unsupported_option_is_false_and_cannot_be_turned_on(name: str) -> None:
    config = BertConfig(**{name: False})
    assert getattr(BertConfig(), name) is getattr(config, name) is False
    with pytest.raises(UsageError, match=f"{name} is True, but only False is supported"):
        BertConfig(**{name: True})
    with pytest.raises(UsageError, match=f"{name} is True, but only False is supported"):
        setattr(config, name, True)


def test_is_decoder_is_another_name_of_causal() -> None:
    assert BertConfig(is_decoder=True).causal
    config = BertConfig()
    config.is_decoder = True
    assert config.causal
    assert config.to_dict()["is_decoder"] is True


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 10**9}))
    with pytest.raises(IntegrityError, match=r"config\.json: hidden_size is 1000000000"):
        BertConfig.from_pretrained(tmp_path)
