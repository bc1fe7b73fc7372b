"""Our models and tokenizer in transformers.Trainer: training, saving, resuming, and scripts of its documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from equality import SMALL

from bertmill import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertTokenizer
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.hub import NAME
from tests.hub_server import Hub

TOKENIZER = BertTokenizer({piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "good", "bad", "film"])})
ROWS = [{**TOKENIZER(text), "labels": label} for text, label in (("good film", 1), ("bad", 0), ("bad film", 0)) * 2]
CONFIG = BertConfig(**{**SMALL, "vocab_size": len(TOKENIZER)})


def trainer_for(model: Any, folder: Path, **settings: Any) -> transformers.Trainer:
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=3,
        report_to=[],
        save_steps=2,
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **settings,
    )
    collator: Any = transformers.DataCollatorWithPadding(TOKENIZER)  # type: ignore[arg-type]
    if isinstance(model, BertForMaskedLM):
        collator = transformers.DataCollatorForLanguageModeling(TOKENIZER, mlm_probability=0.5)  # type: ignore[arg-type]
    return transformers.Trainer(model, arguments, collator, train_dataset=ROWS, processing_class=TOKENIZER)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [BertForSequenceClassification, BertForMaskedLM])
def test_trainer_saves_and_resumes_a_model_that_from_pretrained_opens(
    tmp_path: Path, kind: type[BertPreTrainedModel]
) -> None:
    torch.manual_seed(0)
    trainer = trainer_for(kind(CONFIG), tmp_path, max_steps=4)
    trainer.train()
    expected = trainer.model.state_dict()
    checkpoint = tmp_path / "checkpoint-4"
    loaded = kind.from_pretrained(checkpoint, config=CONFIG)
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    assert BertTokenizer.from_pretrained(checkpoint).vocab == TOKENIZER.vocab
    again = trainer_for(kind(CONFIG), tmp_path, max_steps=4)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())
    trainer.save_model(str(tmp_path / "final"))
    trainer.model.save_pretrained(tmp_path / "final")
    assert transformers.AutoModel.from_pretrained(tmp_path / "final").config.hidden_size == CONFIG.hidden_size


def test_the_example_of_the_model_card_runs_with_the_import_changed(hub: Hub) -> None:
    del hub
    from bertmill import BertModel, BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(NAME)
    model = BertModel.from_pretrained(NAME)
    text = "Replace me by any text you'd like."
    encoded_input = tokenizer(text, return_tensors="pt")
    output = model(**encoded_input)
    assert output.last_hidden_state.shape == (1, encoded_input.input_ids.shape[1], model.config.hidden_size)
    assert output.pooler_output.shape == (1, model.config.hidden_size)


def test_the_first_example_of_the_documentation_runs_with_the_classes_of_bert(hub: Hub) -> None:
    del hub
    from bertmill import BertForMaskedLM, BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(NAME)
    model = BertForMaskedLM.from_pretrained(NAME, dtype=torch.float16, device_map="auto", attn_implementation="sdpa")
    text = "Plants create [MASK] through a process known as photosynthesis."
    inputs = tokenizer(text, return_tensors="pt").to(model.device)

    with torch.no_grad():
        outputs = model(**inputs)
        predictions = outputs.logits

    masked_index = torch.where(inputs["input_ids"] == tokenizer.mask_token_id)[1]
    predicted_token_id = predictions[0, masked_index].argmax(dim=-1)
    predicted_token = tokenizer.decode(predicted_token_id)
    assert predicted_token in tokenizer.vocab
