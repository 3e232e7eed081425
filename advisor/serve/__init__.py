"""The answers of `advise` over HTTP, for programs without torch and pages in a browser."""
