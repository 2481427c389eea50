"""What the caches are held against: every layer kind written out from its definition, in float64, over whole sequences.

Nothing here is shared with the caches or with the steps over them, and nothing here holds a cache: grouping of heads, scale,
mask, window, chunk, expansion of latents, sinks, stored formats and recurrences are all written a second time, by the plainest
operations. Each answer comes with a bound on how far a right step in float32 may be from it, from the sizes of the very
numbers that were added.
"""
