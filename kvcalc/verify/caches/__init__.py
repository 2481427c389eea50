"""Caches that hold one array of rows each: keys, values, a latent, an indexer's keys.

A cache takes stored rows ``[heads, n, width]`` of one sequence and gives back all that it still holds, with the
position of every row. They differ in nothing but where the rows lie.
"""
