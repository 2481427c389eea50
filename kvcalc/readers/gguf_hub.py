"""A GGUF file of a hub repository: from the user's own cache where it is there, else its header by ranges."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from kvcalc.errors import HubError, MissingExtraError, UsageError
from kvcalc.readers.gguf import GgufFile, read_gguf, read_parts
from kvcalc.readers.gguf_url import open_url
from kvcalc.readers.hub import REPOSITORY


def read_hub_gguf(repository: str, file: str, revision: str | None = None) -> GgufFile:
    """The header of ``file`` in ORG/NAME; token, endpoint, cache and offline switch are huggingface_hub's.

    Raises HubError, MissingExtraError, GgufError, UsageError.
    """
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"{repository[:60]!r} is no hub repository", fix="write ORG/NAME, like Qwen/Qwen3-8B-GGUF")
    if ".." in Path(file).parts or file.startswith("/"):
        raise UsageError(f"--file {file[:60]!r} is no file of a repository", fix="write its path within the repository")
    try:
        from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # it is, lazily
    except ImportError:
        raise MissingExtraError("the hub needs the package huggingface_hub", fix='pip install "kvcalc[hub]"') from None
    cached = try_to_load_from_cache(repository, file, revision=revision)
    if isinstance(cached, str) and Path(cached).is_file():
        return read_gguf(cached)
    if constants.HF_HUB_OFFLINE:
        raise HubError(
            "the file is not in the cache, and the hub is switched off", f"hub {repository}: {file}", "unset HF_HUB_OFFLINE"
        )
    headers = {name: str(value) for name, value in build_hf_headers().items()}
    url = hf_hub_url(repository, quote(file, safe="/"), revision=revision)
    return read_parts(url, lambda one: open_url(one, headers), lambda _: True)
