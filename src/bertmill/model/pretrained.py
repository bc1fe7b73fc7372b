"""The base class of all models: initial weights, model folders, modules of other models, small conveniences.

`from_pretrained` builds the model without memory (torch's meta device), compares names and shapes with the folder,
and only then reads the tensors. Those that the folder does not have are initialized.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bertmill.checkpoint.huggingface import CONFIG_FILE, ModelFolder, canonical, open_folder, write_folder
from bertmill.checkpoint.load_plan import LoadReport, load_tensors, plan_loading
from bertmill.checkpoint.names import find_model
from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.dropout import draw_outside_compiled_code
from bertmill.model.encoder import Encoded
from bertmill.model.layers import BertLayer
from bertmill.model.outputs import ModelOutput, Result
from bertmill.model.padding import Inputs

# A normal distribution cut at two standard deviations has 0.8796 of the standard deviation of the whole one.
_CUT_AT = 2.0
_LEFT_BY_CUTTING = 0.8796256610342398


class BertPreTrainedModel(nn.Module):
    """A BERT with or without a head. `load_report` is the report of `from_pretrained`."""

    base_model_prefix = "bert"
    PARTS: ClassVar[tuple[str, ...]] = ()  # what the constructor can be told beside the settings
    load_report: LoadReport | None = None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        config: BertConfig | None = None,
        new_classifier: bool = False,
        **settings: Any,
    ) -> Self:
        """The model of a folder or installed model, in evaluation mode; `settings` replace those of its config.json.

        `new_classifier` leaves the classifier of the folder aside, whatever its labels are.
        """
        parts = {name: settings.pop(name) for name in cls.PARTS if name in settings}
        folder = open_folder(find_model(name_or_folder))
        classifier = [name for name in folder.tensors if new_classifier and name.startswith("classifier.")]
        ignored = [folder.tensors.pop(name).name for name in classifier]
        if config is None:
            config = BertConfig.from_file_settings(folder.settings, folder.path / CONFIG_FILE)
        config = config.with_settings(**settings)
        with torch.device("meta"):
            model = cls(config, **parts)
        wanted = model.shapes()
        tensors, model.load_report = load_tensors(folder, wanted)
        model.load_report.ignored += ignored
        for name in model.load_report.new:
            tensors[name] = torch.empty(wanted[name])
            set_first_value(name, tensors[name], config)
        model.load_state_dict(tensors, strict=False, assign=True)
        model.tie_weights()
        return model.eval()

    @classmethod
    def from_modules(cls, config: BertConfig, modules: Mapping[str, nn.Module], **parts: Any) -> Self:
        """Build the model around the leaf modules of another model: shared, not copied.

        `modules` maps Hugging Face's names to modules, as `dict(model.named_modules())` does. Every Linear, Embedding
        and LayerNorm comes from it, or any module that is called like one (LoRA, quantization). The decoder of an MLM
        head is tied if it was. The mode, training or evaluation, is that of the modules.
        """
        with torch.device("meta"):
            model = cls(config, **parts)
        leaves = [name for name, module in model.named_modules() if module._parameters and not module._modules]
        missing = [name for name in leaves if name not in modules]
        if missing:
            raise UsageError(f"{cls.__name__} needs modules that were not given: {', '.join(missing)}")
        model.train(modules[leaves[0]].training)
        for name in leaves:
            model.set_submodule(name, modules[name])
        model.adopt_shared_parameters()
        return model

    @classmethod
    def compare(cls, folder: ModelFolder, config: BertConfig) -> LoadReport:
        """What `from_pretrained` would report or refuse, without reading a weight."""
        with torch.device("meta"):
            return plan_loading(folder, cls(config).shapes())[1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a Hugging Face model folder. A tokenizer or other files already in `folder` stay."""
        tensors = {name: parameter.detach().cpu() for name, parameter in self.named_parameters()}
        dtype = str(self.dtype).removeprefix("torch.")
        settings = {**self.config.to_dict(), "architectures": [type(self).__name__], "dtype": dtype}
        write_folder(Path(folder), dict(sorted(settings.items())), tensors)

    def initialize(self) -> None:
        """Give every parameter its first value, from torch's global generator; called by every constructor."""
        self.tie_weights()
        for name, parameter in self.named_parameters():
            if not parameter.is_meta and not name.startswith(f"{self.base_model_prefix}."):  # the body has done its own
                set_first_value(name, parameter.data, self.config)

    def tie_weights(self) -> None:
        """Make one parameter of those that have two names; models with an MLM head have such parameters."""

    def adopt_shared_parameters(self) -> None:
        """After its modules were replaced, take over parameters that the model has under a second name."""

    def wrap(self, output: ModelOutput, inputs: Inputs, encoded: Encoded, return_dict: bool | None) -> Result:
        """Add requested hidden states and weights, restore the padding, and convert to a tuple if requested."""
        output = replace(output, hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        if inputs.padding is not None:
            output = output.padded(inputs.padding)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    @property
    def base_model(self) -> Any:
        """The model without its head."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Embedding:
        embeddings: nn.Embedding = self.base_model.embeddings.word_embeddings
        return embeddings

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Give the vocabulary another size, in place: pieces keep their rows, new ones get first values."""
        self.config.vocab_size = new_num_tokens
        embeddings = self.get_input_embeddings()
        embeddings.num_embeddings = new_num_tokens
        embeddings.weight = self._resized("embeddings.word_embeddings.weight", embeddings.weight)
        return embeddings

    def _resized(self, name: str, old: Tensor) -> nn.Parameter:
        """`old` with as many rows as the vocabulary has pieces."""
        new = old.new_empty(self.config.vocab_size, *old.shape[1:])
        set_first_value(name, new, self.config)
        kept = min(len(old), len(new))
        new[:kept] = old.detach()[:kept]
        return nn.Parameter(new, requires_grad=old.requires_grad)

    def gradient_checkpointing_enable(
        self,
        gradient_checkpointing_kwargs: Mapping[str, Any] | None = None,
        every_n_layers: int = 1,
        offload: bool = False,
    ) -> None:
        """Train with less memory, running every layer forward twice: the same gradients, to the bit.

        The arguments are those that Hugging Face's Trainer gives. The first chooses among torch's ways to do it, which
        differ in nothing but their limits, and is not needed.
        """
        if every_n_layers != 1 or offload:
            raise UsageError("gradient checkpointing is of every layer, and nothing is moved to another device")
        self.base_model.encoder.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        self.base_model.encoder.gradient_checkpointing = False

    def compile_layers(self) -> None:
        """Let torch.compile fuse the parts of layers around attention; UsageError, and nothing done, if it cannot."""
        from torch._dynamo.exc import TorchDynamoException  # here: it takes two seconds

        draw_outside_compiled_code()
        layers = [module for module in self.modules() if isinstance(module, BertLayer)]
        was_training, was_disabled = self.training, logging.root.manager.disable
        logging.disable()  # what torch tells is a hundred lines, and in our message
        try:
            self.train()
            for layer in layers:
                layer.compile_parts()
        except TorchDynamoException as error:
            for layer in layers:
                layer.uncompile_parts()
            reason = str(error).partition("\n")[0]
            remedy = "install a C++ compiler and the headers of Python (for a GPU Triton), or train with --no-compile"
            raise UsageError(f"torch.compile does not work here: {reason}", remedy=remedy) from None
        finally:
            self.train(was_training)
            logging.disable(was_disabled)

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        left_out = [module.weight for module in self.modules() if exclude_embeddings and type(module) is nn.Embedding]
        counted = [each for each in self.parameters() if not any(each is other for other in left_out)]
        return sum(each.numel() for each in counted if each.requires_grad or not only_trainable)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


@torch.no_grad()
def set_first_value(name: str, tensor: Tensor, config: BertConfig) -> None:
    """Weights: normal, cut at 2σ, with the σ of `initializer_range`; LayerNorm 1; biases and the padding piece 0."""
    if name.endswith("LayerNorm.weight"):
        tensor.fill_(1.0)
    elif name.endswith("bias"):
        tensor.zero_()
    else:
        uncut = config.initializer_range / _LEFT_BY_CUTTING
        nn.init.trunc_normal_(tensor, std=uncut, a=-_CUT_AT * uncut, b=_CUT_AT * uncut)
        if canonical(name) == "embeddings.word_embeddings.weight" and config.pad_token_id is not None:
            tensor[config.pad_token_id].zero_()
