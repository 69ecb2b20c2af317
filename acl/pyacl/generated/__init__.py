"""Made by `python -m tools.generate`: never edited.  `rt` to `prof` are imported as `acl.rt` to `acl.prof`."""
