"""A device that is not the CPU, made of CPU tensors: what mixes the two, as no GPU allows, is an error.

Tensors of the device wrap CPU tensors and say that they are elsewhere. Every operation is computed on what they wrap,
after a look at where its arguments are. Torch's `lazy` device lends its name: it has no code of its own in this build,
so whatever slips past the wrappers fails too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("lazy", 0)
_CROSSING = ("aten::_to_copy", "aten::to", "aten::copy_")
"""What moves tensors between devices."""
_INDEXING = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")
"""What takes CPU indices on a GPU, too."""
_MADE_IN_C = (torch.tensor, torch.as_tensor)
"""What asks its device for memory before anybody can step in."""


class Elsewhere(torch.Tensor):
    """A tensor of the device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Elsewhere":
        """Wrap a CPU tensor."""
        wrapper: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=ELSEWHERE,
        )
        wrapper.held = held
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.held.tolist()


def _run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    flat, name = tree_flatten((args, kwargs))[0], func._schema.name
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    ours = any(isinstance(tensor, Elsewhere) for tensor in tensors)
    strangers = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim() > 0]
    if ours and strangers and name not in (*_CROSSING, *_INDEXING):
        raise RuntimeError(f"{name}: got tensors on {ELSEWHERE} and on the CPU (of shape {tuple(strangers[0].shape)})")
    named = [value for value in flat if isinstance(value, torch.device)]
    result = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
    if func._schema.is_mutable and name.endswith("_"):
        return args[0]
    if "out" in kwargs:
        return kwargs["out"]
    stays = named[0] == ELSEWHERE if named else ours
    return tree_map(lambda value: Elsewhere(value) if stays and type(value) is torch.Tensor else value, result)


def _plain(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in _MADE_IN_C and given.get("device") is not None and torch.device(given["device"]) == ELSEWHERE:
            return func(*args, **{**given, "device": "cpu"}).to(ELSEWHERE)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[0], Elsewhere):
            index = tuple(map(_as_tensor, args[1])) if isinstance(args[1], tuple) else _as_tensor(args[1])
            return func(args[0], index, *args[2:])
        return func(*args, **given)


def _as_tensor(index: Any) -> Any:
    return Elsewhere(torch.tensor(index)) if isinstance(index, list) else index


@contextmanager
def pretended_device() -> Iterator[Callable[[Any], Any]]:
    """Within it the device exists; yields what moves a model there, in place."""

    def moved(model: Any) -> Any:
        parameters: dict[int, torch.nn.Parameter] = {}
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    module._parameters[name] = parameters.setdefault(
                        id(weight), torch.nn.Parameter(Elsewhere(weight.detach()))
                    )
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = Elsewhere(buffer)
        return model

    with _Operations(), _Constructors(), mock.patch("torch.is_autocast_enabled", return_value=False):  # type: ignore[no-untyped-call]
        yield moved
