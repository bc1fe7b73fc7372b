"""Base class of all models: initial weights, model folders, sharing modules with other models.

`from_pretrained` builds the model without allocating memory (on torch's meta device), compares names and shapes with
the folder, and only then reads the tensors. Tensors that the folder does not have are initialized.
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
from bertmill.model.padding import Inputs, pack

# Truncating a normal distribution at two standard deviations multiplies its standard deviation by 0.8796.
_CUT_AT = 2.0
_LEFT_BY_CUTTING = 0.8796256610342398


class BertPreTrainedModel(nn.Module):
    """A BERT model with or without a head. `from_pretrained` sets `load_report`.

    If `compute_padding` is set, outputs at masked positions are those of Hugging Face instead of zeros.
    """

    base_model_prefix = "bert"
    PARTS: ClassVar[tuple[str, ...]] = ()  # arguments of the constructor besides the config
    load_report: LoadReport | None = None
    compute_padding = False

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
        """Load a model folder or installed model, in evaluation mode. `settings` replace fields of its config.json.

        With `new_classifier`, the classifier in the folder is ignored and a new one initialized.
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
        """Build the model around the leaf modules of another model, which are shared, not copied.

        `modules` maps Hugging Face's names to modules, as `dict(model.named_modules())` does. It provides every Linear,
        Embedding and LayerNorm, or modules with the same call signature (LoRA, quantization). The decoder of an MLM
        head is tied if it was tied before. The modules also decide between training and evaluation mode.
        """
        with torch.device("meta"):
            model = cls(config, **parts)
        leaves = [name for name, module in model.named_modules() if module._parameters and not module._modules]
        missing = [name for name in leaves if name not in modules]
        if missing:
            raise UsageError(f"modules that {cls.__name__} needs are missing: {', '.join(missing)}")
        model.train(modules[leaves[0]].training)
        for name in leaves:
            model.set_submodule(name, modules[name])
        model.adopt_shared_parameters()
        return model

    @classmethod
    def compare(cls, folder: ModelFolder, config: BertConfig) -> LoadReport:
        """Return the report of `from_pretrained`, or raise its error, without reading any weights."""
        with torch.device("meta"):
            return plan_loading(folder, cls(config).shapes())[1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        return {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a Hugging Face model folder. Other files in `folder`, such as a tokenizer, are kept."""
        tensors = {name: parameter.detach().cpu() for name, parameter in self.named_parameters()}
        dtype = str(self.dtype).removeprefix("torch.")
        settings = {**self.config.to_dict(), "architectures": [type(self).__name__], "dtype": dtype}
        write_folder(Path(folder), dict(sorted(settings.items())), tensors)

    def initialize(self) -> None:
        """Initialize all parameters with torch's global generator. Every constructor calls this method."""
        self.tie_weights()
        for name, parameter in self.named_parameters():
            if not parameter.is_meta and not name.startswith(f"{self.base_model_prefix}."):  # the body is initialized
                set_first_value(name, parameter.data, self.config)

    def tie_weights(self) -> None:
        """Tie parameters that have two names, as models with an MLM head do."""

    def adopt_shared_parameters(self) -> None:
        """After modules have been replaced, update parameters that the model has under a second name."""

    def pack(self, *inputs: Any, every_column: bool = False, **kept: Any) -> Inputs:
        """Pack the inputs of `forward`. The arguments are those of `padding.pack`."""
        return pack(*inputs, every_column=every_column or self.compute_padding, **kept)

    def wrap(self, output: ModelOutput, inputs: Inputs, encoded: Encoded, return_dict: bool | None) -> Result:
        """Add requested hidden states and attention weights, restore padding, and convert to a tuple if requested."""
        output = replace(output, hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        if inputs.padding is not None:
            output = output.padded(inputs.padding)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    @property
    def base_model(self) -> Any:
        """As in Hugging Face: the model without its head."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Embedding:
        """As in Hugging Face: the piece embeddings."""
        embeddings: nn.Embedding = self.base_model.embeddings.word_embeddings
        return embeddings

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """As in Hugging Face: resize the vocabulary in place. Existing rows are kept, new rows initialized."""
        self.config.vocab_size = new_num_tokens
        embeddings = self.get_input_embeddings()
        embeddings.num_embeddings = new_num_tokens
        embeddings.weight = self._resized("embeddings.word_embeddings.weight", embeddings.weight)
        return embeddings

    def _resized(self, name: str, old: Tensor) -> nn.Parameter:
        """Return `old` with one row per piece of the vocabulary."""
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
        """As in Hugging Face: train with less memory by running every layer forward twice.

        Gradients are bit-identical. The arguments are those that Hugging Face's Trainer passes.
        `gradient_checkpointing_kwargs` is ignored: it selects one of torch's implementations, which differ only in
        their limitations.
        """
        if every_n_layers != 1 or offload:
            raise UsageError("gradient checkpointing supports only every_n_layers=1 and offload=False")
        self.base_model.encoder.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """As in Hugging Face: keep activations instead of recomputing them."""
        self.base_model.encoder.gradient_checkpointing = False

    def compile_layers(self) -> None:
        """Compile the parts of layers around attention with torch.compile.

        If compilation fails, raises UsageError and leaves the model unchanged.
        """
        from torch._dynamo.exc import TorchDynamoException  # imported here because it takes two seconds

        draw_outside_compiled_code()
        layers = [module for module in self.modules() if isinstance(module, BertLayer)]
        was_training, was_disabled = self.training, logging.root.manager.disable
        logging.disable()  # torch logs a hundred lines; our message has the reason
        try:
            self.train()
            for layer in layers:
                layer.compile_parts()
        except TorchDynamoException as error:
            for layer in layers:
                layer.uncompile_parts()
            reason = str(error).partition("\n")[0]
            remedy = "install a C++ compiler and the Python headers (on a GPU: Triton), or set compile to false"
            raise UsageError(f"torch.compile does not work here: {reason}", remedy=remedy) from None
        finally:
            self.train(was_training)
            logging.disable(was_disabled)

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """As in Hugging Face: the number of parameters."""
        excluded = [module.weight for module in self.modules() if exclude_embeddings and type(module) is nn.Embedding]
        counted = [each for each in self.parameters() if not any(each is other for other in excluded)]
        return sum(each.numel() for each in counted if each.requires_grad or not only_trainable)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the parameters."""
        return next(self.parameters()).dtype


@torch.no_grad()
def set_first_value(name: str, tensor: Tensor, config: BertConfig) -> None:
    """Initialize the parameter `name` in place.

    - LayerNorm weights are 1. Biases and the embedding of the padding piece are 0.
    - Other weights are normal, truncated at 2σ, with a standard deviation of `initializer_range` after truncation.
    """
    if name.endswith("LayerNorm.weight"):
        tensor.fill_(1.0)
    elif name.endswith("bias"):
        tensor.zero_()
    else:
        uncut = config.initializer_range / _LEFT_BY_CUTTING
        nn.init.trunc_normal_(tensor, std=uncut, a=-_CUT_AT * uncut, b=_CUT_AT * uncut)
        if canonical(name) == "embeddings.word_embeddings.weight" and config.pad_token_id is not None:
            tensor[config.pad_token_id].zero_()
