"""The documentation's site: `python -m tools.site FOLDER` builds it with mkdocs and looks at every link.

`docs/design-package.md`, "The site of the documentation", has the reasons.
"""
