"""Made by `python -m tools.generate` from tools/generate/pyacl_api.json: never edited.

`rt` to `prof` are imported as `acl.rt` to `acl.prof`, where their stubs lie; `_root` has the functions of `acl`.
"""
