"""config.json from the hub, through huggingface_hub: its cache, token, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` hold.

Only small text files are fetched; never weights, and no code of the repository is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kvcalc.core.fields import Field
from kvcalc.core.model import Model
from kvcalc.errors import HubError, MissingExtraError, UsageError
from kvcalc.readers.hf_config import CONFIG_NAME, read_config

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def read_hub(
    repository: str, revision: str | None = None, overrides: Mapping[str, Field] | None = None, assume: str = ""
) -> Model:
    """The model of ORG/NAME. Raises HubError, MissingExtraError, ConfigError, ArchitectureError."""
    path = fetch(repository, CONFIG_NAME, revision)
    return replace(read_config(path, overrides, assume), name=repository, source=f"hub {repository}: {CONFIG_NAME}")


def fetch(repository: str, file: str, revision: str | None = None) -> Path:
    """One small file of a repository, in the user's own cache. Raises HubError, MissingExtraError, UsageError."""
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"{repository[:60]!r} is no hub repository", fix="write ORG/NAME, like Qwen/Qwen3-8B")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError:
        raise MissingExtraError("the hub needs the package huggingface_hub", fix='pip install "kvcalc[hub]"') from None
    where = f"hub {repository}: {file}"
    try:
        return Path(hf_hub_download(repository, file, revision=revision))
    except GatedRepoError:
        raise HubError("the repository is gated", where, "accept its licence on the hub, then log in: hf auth login") from None
    except RepositoryNotFoundError:
        raise HubError(
            "there is no such repository, or it is private", where, "check the name; log in with hf auth login"
        ) from None
    except RevisionNotFoundError:
        raise HubError(f"the repository has no revision {str(revision)[:60]!r}", where, "check --revision") from None
    except LocalEntryNotFoundError:
        raise HubError(
            "the hub can't be reached, and the file is not in the cache", where, "check the network, or give --config FILE"
        ) from None
    except EntryNotFoundError:
        raise HubError(f"the repository has no {file}", where, "a GGUF repository needs --file NAME.gguf") from None
    except Exception as problem:  # noqa: BLE001 - whatever the client's transport raises means the same to a user
        raise HubError(f"the hub did not answer: {type(problem).__name__}", where, "check the network and HF_ENDPOINT") from None
