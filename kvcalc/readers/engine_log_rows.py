"""Every wording that the log reader knows, in the order in which a line is tried."""

from __future__ import annotations

from kvcalc.readers.engine_log_llamacpp import LLAMACPP
from kvcalc.readers.engine_log_others import OLLAMA, OTHERS, SGLANG, TENSORRT_LLM
from kvcalc.readers.engine_log_row import Row
from kvcalc.readers.engine_log_vllm import VLLM

ROWS: tuple[Row, ...] = (*LLAMACPP, *VLLM, *SGLANG, *TENSORRT_LLM, *OLLAMA, *OTHERS)
