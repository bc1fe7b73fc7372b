"""Base class of all models: initial weights, model folders, sharing modules with other models.

`from_pretrained` builds the model without allocating memory (on torch's meta device), compares names and shapes with
the folder, and only then reads the tensors. Tensors that the folder does not have are initialized. A subclass outside
this package is built in memory instead, because its constructor may compute values.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, overload

import torch
from torch import Tensor, nn

from bertmill.checkpoint.arguments import LOADING, SAVING, check_and_drop, hub_arguments, require_none_left
from bertmill.checkpoint.huggingface import CONFIG_FILE, HEADS, ModelFolder, open_folder, write_folder
from bertmill.checkpoint.load_plan import LoadReport, load_tensors, plan_loading
from bertmill.checkpoint.names import find_model
from bertmill.errors import UsageError
from bertmill.model.compilation import compile_layers
from bertmill.model.config import BertConfig
from bertmill.model.encoder import Encoded
from bertmill.model.initialization import initialize_parameter, initialize_tensor, new_modules, without_values
from bertmill.model.loading import (
    clone_tied_parameters,
    device_in,
    dtype_of,
    loading_info,
    padded_size,
    without_unused_inputs,
)
from bertmill.model.outputs import ModelOutput, Result
from bertmill.model.padding import Inputs, pack

ModelT = TypeVar("ModelT")


class _ModelClass(type):
    """Converts a `transformers` config before a model is built from it, also in subclasses."""

    def __call__(cls: type[ModelT], config: Any, *arguments: Any, **more: Any) -> ModelT:
        return super().__call__(BertConfig.of(config), *arguments, **more)  # type: ignore[misc, no-any-return]


class BertPreTrainedModel(nn.Module, metaclass=_ModelClass):
    """A BERT model with or without a head. `from_pretrained` sets `load_report`.

    A subclass may have layers of its own next to `self.bert`; its constructor ends with `self.post_init()`.
    If `compute_padding` is set, outputs at masked positions are those of Hugging Face instead of zeros.
    """

    config_class = BertConfig
    base_model_prefix = "bert"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    load_report: LoadReport | None = None
    compute_padding = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.register_state_dict_post_hook(clone_tied_parameters)  # type: ignore[no-untyped-call]

    @overload
    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, output_loading_info: Literal[False] = ..., **settings: Any
    ) -> Self: ...
    @overload
    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, output_loading_info: Literal[True], **settings: Any
    ) -> tuple[Self, dict[str, Any]]: ...
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        config: Any = None,
        new_classifier: bool = False,
        dtype: str | torch.dtype | None = None,
        torch_dtype: str | torch.dtype | None = None,
        device_map: Any = None,
        ignore_mismatched_sizes: bool = False,
        output_loading_info: bool = False,
        **settings: Any,
    ) -> Self | tuple[Self, dict[str, Any]]:
        """Load a model folder, an installed model or a model on the Hub, in evaluation mode.

        - With `new_classifier`, the classifier in the folder is ignored and a new one initialized.
        - `dtype` or `torch_dtype` is float32 unless given; "auto" is the dtype of the folder.
        - `device_map` is a device, {"": device} or "auto".
        - With `ignore_mismatched_sizes`, tensors of another shape are initialized.
        - With `output_loading_info`, returns the model and a dict of the differences.
        - `config` replaces config.json, which may then be missing, as in the checkpoints of a Trainer.
        - `settings` replace fields of config.json, or are arguments of the constructor or of Hugging Face's
          `from_pretrained` (see `bertmill.checkpoint.arguments`).
        """
        hub = hub_arguments(settings)
        check_and_drop(settings, LOADING)
        parts = {name: settings.pop(name) for name in cls._parts() if name in settings}
        given = None if config is None else BertConfig.of(config).to_dict()
        folder = open_folder(find_model(pretrained_model_name_or_path, **hub), default_settings=given)
        classifier = [name for name in folder.tensors if new_classifier and name.startswith("classifier.")]
        ignored = [folder.tensors.pop(name).name for name in classifier]
        if config is None:
            config = BertConfig.from_file_settings(folder.settings, folder.path / CONFIG_FILE)
        require_none_left({name: value for name, value in settings.items() if not hasattr(config, name)}, cls.__name__)
        config = BertConfig.of(config).with_settings(**settings)
        with nullcontext() if cls._is_custom() else without_values():
            model = cls(config, **parts)
        wanted = model.shapes()
        tensors, report = load_tensors(folder, wanted, heads=model._heads(), ignore_shapes=ignore_mismatched_sizes)
        report.ignored += ignored
        for name in report.new:
            if model.get_parameter(name).is_meta:
                tensors[name] = torch.empty(wanted[name])
                initialize_tensor(name, tensors[name], config)
        model.load_state_dict(tensors, strict=False, assign=True)
        if cls._is_custom():
            model.initialize(report.new)
        model.tie_weights()
        model.load_report = report
        model = model.to(device_in(device_map), dtype_of(dtype or torch_dtype, folder)).eval()
        return (model, loading_info(report)) if output_loading_info else model

    @classmethod
    def _parts(cls) -> set[str]:
        """The names of the arguments of the constructor besides the config."""
        return set(inspect.signature(cls.__init__).parameters) - {"self", "config"}

    @classmethod
    def _is_custom(cls) -> bool:
        """Whether the class is defined outside this package."""
        return cls.__module__.partition(".")[0] != __name__.partition(".")[0]

    def _heads(self) -> tuple[str, ...]:
        """The prefixes of tensors that a folder may lack, or may have in addition."""
        if not self._is_custom():
            return HEADS
        layers = (f"{name}." for name, _ in self.named_children() if name != self.base_model_prefix)
        return (*HEADS, *layers, *self._parameters)

    @classmethod
    def from_modules(cls, config: BertConfig, modules: Mapping[str, nn.Module], **parts: Any) -> Self:
        """Build the model around the leaf modules of another model, which are shared, not copied.

        `modules` maps Hugging Face's names to modules, as `dict(model.named_modules())` does. It provides every Linear,
        Embedding and LayerNorm, or modules with the same call signature (LoRA, quantization). The decoder of an MLM
        head is tied if it was tied before. The modules also decide between training and evaluation mode.
        """
        with without_values():
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
        with without_values():
            return plan_loading(folder, cls(config).shapes())[1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        return {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}

    def save_pretrained(
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: Mapping[str, Tensor] | None = None,
        **arguments: Any,
    ) -> None:
        """Write a Hugging Face model folder. Other files in the folder, such as a tokenizer, are kept.

        `state_dict` replaces the parameters. Only the main process writes. Other arguments are Hugging Face's (see
        `bertmill.checkpoint.arguments`).
        """
        check_and_drop(arguments, SAVING)
        require_none_left(arguments, "save_pretrained")
        names = [name for name, _ in self.named_parameters()]
        values = dict(self.named_parameters()) if state_dict is None else state_dict
        missing = [name for name in names if name not in values]
        if missing:
            raise UsageError(f"state_dict has no {', '.join(missing[:10])}")
        if not is_main_process:
            return
        folder, tensors = Path(save_directory), {name: values[name].detach().cpu() for name in names}
        dtype = str(self.dtype).removeprefix("torch.")
        settings = {**self.config.to_dict(), "architectures": [type(self).__name__], "dtype": dtype}
        write_folder(folder, dict(sorted(settings.items())), tensors)

    def initialize(self, names: Collection[str] | None = None) -> None:
        """Initialize parameters with torch's global generator: those in `names`, by default all outside the body.

        Every constructor calls this method. Layers other than Linear, Embedding and LayerNorm keep their values. If a
        subclass has an `_init_weights` of its own, that initializes the layers outside the body.
        """
        self.tie_weights()
        body, is_own = f"{self.base_model_prefix}.", type(self)._init_weights is not BertPreTrainedModel._init_weights
        for name, parameter in self.named_parameters():
            is_new = not name.startswith(body) if names is None else name in names
            if is_new and not parameter.is_meta and not (is_own and not name.startswith(body)):
                initialize_parameter(name, parameter, self.get_submodule(name.rpartition(".")[0]), self.config)
        for module in new_modules(self, body, names) if is_own else ():
            self._init_weights(module)

    def _init_weights(self, module: nn.Module) -> None:
        """As in Hugging Face: initialize a Linear, Embedding or LayerNorm. A subclass may override this method."""
        first_names = {parameter: name for name, parameter in self.named_parameters()}  # of tied parameters
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.is_meta:
                initialize_parameter(first_names.get(parameter, name), parameter, module, self.config)

    def post_init(self) -> None:
        """As in Hugging Face: a constructor of a subclass ends with this call, which initializes its layers."""
        self.initialize()

    init_weights = post_init

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return super().__call__(*inputs, **without_unused_inputs(self.forward, named))

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

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """As in Hugging Face: replace the piece embeddings."""
        self.base_model.embeddings.word_embeddings = value
        self.tie_weights()

    @classmethod
    def can_generate(cls) -> bool:
        """As in Hugging Face: False, because these models have no `generate`."""
        return False

    def get_output_embeddings(self) -> nn.Linear | None:
        """As in Hugging Face: None, except in models with an MLM head."""
        return None

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = False
    ) -> nn.Embedding:
        """As in Hugging Face: resize the vocabulary in place. Existing rows are kept, new rows initialized.

        `mean_resizing` has no effect: new rows are never drawn around the mean of the existing ones.
        """
        embeddings = self.get_input_embeddings()
        self.config.vocab_size = padded_size(embeddings.num_embeddings, new_num_tokens, pad_to_multiple_of)
        if self.config.vocab_size == embeddings.num_embeddings:
            return embeddings
        embeddings.num_embeddings = self.config.vocab_size
        embeddings.weight = self._resized("embeddings.word_embeddings.weight", embeddings.weight)
        return embeddings

    def _resized(self, name: str, old: Tensor) -> nn.Parameter:
        """Return `old` with one row per piece of the vocabulary."""
        new = old.new_empty(self.config.vocab_size, *old.shape[1:])
        initialize_tensor(name, new, self.config)
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

    @property
    def is_gradient_checkpointing(self) -> bool:
        """As in Hugging Face: whether layers run forward twice."""
        return bool(self.base_model.encoder.gradient_checkpointing)

    def compile_layers(self) -> None:
        """Compile the parts of layers around attention with torch.compile.

        If compilation fails, raises UsageError and leaves the model unchanged.
        """
        compile_layers(self)

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
        """Dtype of the parameters."""
        return next(self.parameters()).dtype
