"""Results in, text out: tables, JSON, CSV, Markdown, pictures."""
