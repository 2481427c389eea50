"""The note's own example: one head, 5 tokens, 8 features, seed 3; a cache that concatenates gives what full attention gives."""

from __future__ import annotations

import torch

from kvcalc.verify.attention import Visibility, attend
from kvcalc.verify.caches.base import RowShape
from kvcalc.verify.caches.concat import ConcatCache
from kvcalc.verify.runs import storage_bytes

TOKENS, WIDTH = 5, 8
CPU = torch.device("cpu")


def test_step_by_step_equals_all_at_once() -> None:
    torch.manual_seed(3)
    queries, keys, values = torch.randn(3, 1, TOKENS, WIDTH)
    scores = queries @ keys.transpose(1, 2) / WIDTH**0.5
    triangle = torch.ones(TOKENS, TOKENS).tril().bool()
    full = scores.masked_fill(~triangle, -torch.inf).softmax(-1) @ values

    shape = RowShape(1, WIDTH, torch.float32)
    key_cache, value_cache = ConcatCache(shape, 1, CPU), ConcatCache(shape, 1, CPU)
    for token in range(TOKENS):
        new = slice(token, token + 1)
        held_keys = key_cache.extend(0, keys[:, new]).rows
        held_values = value_cache.extend(0, values[:, new]).rows
        # one new token sees past and present alone: no triangular mask
        step = attend(queries[:, new], held_keys, held_values, WIDTH**-0.5)
        torch.testing.assert_close(step, full[:, new])
    assert storage_bytes(key_cache.tensors() + value_cache.tensors()) == 2 * TOKENS * WIDTH * 4


def test_a_chunk_of_new_tokens_needs_the_triangle() -> None:
    torch.manual_seed(3)
    queries, keys, values = torch.randn(3, 1, TOKENS, WIDTH)
    position = torch.arange(TOKENS)
    seen = Visibility().mask(position[2:], position)
    right = attend(queries[:, 2:], keys, values, WIDTH**-0.5, seen)
    for row, token in enumerate(range(2, TOKENS)):
        alone = attend(queries[:, token : token + 1], keys[:, : token + 1], values[:, : token + 1], WIDTH**-0.5)
        torch.testing.assert_close(right[:, row : row + 1], alone)
    wrong = attend(queries[:, 2:], keys, values, WIDTH**-0.5)
    assert not torch.allclose(right, wrong)
