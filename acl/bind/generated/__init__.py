"""Made by `python -m tools.generate`: never edited."""
