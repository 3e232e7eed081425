"""Serves the answers of `advise` over HTTP, to programs without torch and to a page in the browser."""
