"""Which GPUs each worker of a study sees."""

import os

import torch


def gpus() -> list[str]:
    """The GPUs that this process may use, by the names that `CUDA_VISIBLE_DEVICES` knows them by."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


def gpus_of_run(device: str) -> int:
    """How many GPUs a run needs: `cuda:1` means the second of two, the first of which is vLLM's."""
    kind = torch.device(device)
    return 0 if kind.type != "cuda" else (kind.index or 0) + 1


def share(available: list[str], each: int, worker: int) -> list[str]:
    """The GPUs of one worker; workers beyond the last share begin again with the first."""
    shares = max(1, len(available) // each)
    start = worker % shares * each
    return available[start : start + each]


def take_gpus(each: int, worker: int) -> None:
    """In a worker: see its own GPUs only, where runs use any."""
    if each:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(share(gpus(), each, worker))
