"""`tests/mutations/changes.py`: what is a change of code, and what only of comments."""

from __future__ import annotations

import importlib.util

import pytest
from support.documents import ROOT

FILE = ROOT / "tests" / "mutations" / "changes.py"
SPEC = importlib.util.spec_from_file_location("changes", FILE)
changes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(changes)

COMMENTS = {
    "docstring": ("a.py", 'def f():\n    """a"""\n    x = 1  # c\n',
                  'def f():\n    """b\n    c."""\n\n    # d\n    x = 1\n'),
    "docstring of a module": ("a.py", '"a"\nx\n', '"b"\n\nx\n'),
    "comment of Cython": ("a.pyx", "cdef int x = <int> 3 # d\n", "cdef int x = <int> 3\n"),
    "comment of C": ("a.c", "int x; /* a */\n#define A 1 /* x */\n int y;",
                     "int x;\n// b\n#define A   1\n int   y;"),
    "quote as a character": ("a.c", "int a = '\"'; /* x */", "int a = '\"';"),
}
CODE = {
    "assigned string": ("a.py", 'x = "a"\n', 'x = "b"\n'),
    "string that begins an expression": ("a.py", '"a" % x\n', '"b" % x\n'),
    "message": ("a.py", 'f("a")\n', 'f("b")\n'),
    "indentation": ("a.py", "if x:\n    y\nz\n", "if x:\n    y\n    z\n"),
    "directive of Cython": ("a.pyx", "# cython: boundscheck=True\n", "# cython: boundscheck=False\n"),
    "C code in Cython": ("a.pyx", 'cdef extern from *:\n    """int x;"""\n', 'cdef extern from *:\n    """int y;"""\n'),
    "end of a macro": ("a.c", "#define A 1\nint y;", "#define A 1 int y;"),
    "second line of a macro": ("a.c", "#define A(x) \\\n f(x)\nint", "#define A(x) \\\n g(x)\nint"),
    "comment within a string": ("a.c", 'char *a = "/* a */";', 'char *a = "/* b */";'),
    "code before a comment": ("a.c", "int a;// c", "int b;// c"),
    "any line of other files": ("a.sh", "# a", "# b"),
}


@pytest.mark.parametrize("name, before, after", COMMENTS.values(), ids=COMMENTS)
def test_code_with_other_comments_is_equal(name, before, after):
    assert changes.code(name, before) == changes.code(name, after)


@pytest.mark.parametrize("name, before, after", CODE.values(), ids=CODE)
def test_changed_code_is_not_equal(name, before, after):
    assert changes.code(name, before) != changes.code(name, after)
