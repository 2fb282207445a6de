"""The vLLM engine. Only this package imports vLLM; everything else works without it. Written for vLLM 0.32."""

from a2tgpo.engines.vllm.engine import VLLMEngine as VLLMEngine
from a2tgpo.engines.vllm.start import check_installed as check_installed
