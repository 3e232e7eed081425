"""Answers over the Model Context Protocol (modelcontextprotocol.io), for coding agents; `server.py` speaks it."""
