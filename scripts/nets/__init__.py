"""Models that the scripts time, each a file that `advise` reads."""
