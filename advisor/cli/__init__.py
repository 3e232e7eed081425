"""The command line: parses arguments, prints the answer and returns the exit code."""
