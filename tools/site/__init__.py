"""The site of the documentation: `python -m tools.site FOLDER` builds it with mkdocs and checks every link.

`docs/design-package.md`, "The site of the documentation", has the reasons.
"""
