"""Builds the extensions (every `acl/**/*.pyx`) and the simulator; metadata is in pyproject.toml.

`ACLPOOL_BUILD` chooses the build: release (default), debug (invariant checks after every mutation),
sanitize (AddressSanitizer and UBSan), tsan (ThreadSanitizer), coverage.  Needs gcc (or clang) and
Cython 3; no CANN, no NumPy.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import Cython.Compiler.Options
from Cython.Build import cythonize
from Cython.Compiler import AutoDocTransforms
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
MODE = os.environ.get("ACLPOOL_BUILD") or "release"
COMPILE = {
    "release": ["-O2", "-g0", "-DNDEBUG"],
    "debug": ["-O1", "-g", "-UNDEBUG", "-DACL_POOL_DEBUG=2"],
    "sanitize": [
        "-O1",
        "-g",
        "-UNDEBUG",
        "-fno-omit-frame-pointer",
        "-DACL_POOL_DEBUG=2",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
    "tsan": ["-O1", "-g", "-UNDEBUG", "-fsanitize=thread"],
    "coverage": ["-O0", "-g", "-UNDEBUG", "--coverage", "-DCYTHON_TRACE_NOGIL=1"],
}
LINK = {
    "release": ["-Wl,-O1"],
    "debug": [],
    "sanitize": ["-fsanitize=address,undefined"],
    "tsan": ["-fsanitize=thread"],
    "coverage": ["--coverage"],
}
SIMULATOR_MODE = {
    "release": "release", "debug": "debug", "sanitize": "asan", "tsan": "tsan", "coverage": "cov",
}
# Aliasing: the loader stores what dlsym gives through `void **`.
COMMON = [
    "-std=gnu11",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-Wno-unused-function",
    "-Werror=incompatible-pointer-types",
    "-Werror=implicit-function-declaration",
]
# Linked into each module of the allocator, and compiled once: see `Build.build_extensions`.
SHARED = "acl/core/lock.c"
ALLOCATOR = (
    "_core", "_pool", "_registry", "core._arena", "core._asleep", "core._check", "core._climb", "core._driver",
    "core._guard", "core._order", "core._pages", "core._place", "core._record", "core._tally", "core._turns",
    "inside._books",
)
NEEDS_SHARED = {"acl.tools._rig", "acl._door", *(f"acl.{name}" for name in ALLOCATOR)}
# Written in C beside a module.
WITH_C = {
    "acl._libacl": "acl/late/*.c",
    "acl._door": "acl/door/*.c",
    "acl._ort": "acl/onnx/*.c",
    "acl.vllm.vllm_ascend_C": "acl/vllm/*.c",
}
# Large, generated, and never hot.
SMALL = {"acl._libacl": ["-O1"]}
# What is declared inline is inlined, and nothing else: a hit in the pool's cache then saves no register.
SMALL["acl._core"] = [
    "-DCYTHON_INLINE=inline __attribute__((always_inline))",
    "-falign-functions=64",
    "-fno-inline-functions-called-once",
    "-fno-inline-small-functions",
    "-fno-inline-functions",
    "-fno-partial-inlining",
]
# A framework's exception passes through the frames of what it called.
ALWAYS = {"acl._door": ["-fexceptions"]}
# Workers are forked; from 3.14 on they would start this file again.
CYTHON_PROCESSES = min(2, os.cpu_count() or 1) if sys.version_info < (3, 14) else 0
DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": True,
    "linetrace": MODE == "coverage",
}


class Signatures(AutoDocTransforms.EmbedSignature):
    """A class's signature in its docstring: Cython hides `self`, and yet counts it, so its star stood too far right."""

    def _fmt_arglist(self, args, npoargs=0, npargs=0, pargs=None, nkargs=0, kargs=None, hide_self=False):
        if hide_self:
            args = [arg for arg in args if not arg.entry.is_self_arg]
            npargs = len(args) - nkargs - npoargs
        return super()._fmt_arglist(args, npoargs, npargs, pargs, nkargs, kargs)


AutoDocTransforms.EmbedSignature = Signatures


def extensions() -> list[Extension]:
    """One extension for each .pyx, with the C files that belong to it."""
    found = []
    for path in sorted((ROOT / "acl").rglob("*.pyx")):
        source = path.relative_to(ROOT)
        name = ".".join(source.with_suffix("").parts)
        extra = sorted(str(c.relative_to(ROOT)) for c in ROOT.glob(WITH_C[name])) if name in WITH_C else []
        flags = ALWAYS.get(name, []) + (SMALL.get(name, []) if MODE == "release" else [])
        headers = [str(h.relative_to(ROOT)) for h in sorted((ROOT / "acl").rglob("*.h"))]
        found.append(
            Extension(
                name,
                [str(source), *extra],
                include_dirs=["acl/include", "acl"],
                libraries=["dl", "pthread"],
                extra_compile_args=COMMON + COMPILE[MODE] + flags,
                extra_link_args=LINK[MODE],
                depends=[h for h in headers if "/sim/" not in h] + [SHARED] * (name in NEEDS_SHARED),
            )
        )
    return found


def simulator_build(folder: Path) -> None:
    """Run acl/sim/build.py, found by its path as `acl` cannot be imported yet; keep the libraries."""
    spec = importlib.util.spec_from_file_location("simulator_build", ROOT / "acl/sim/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.build(ROOT / f"build/simulator-{MODE}", SIMULATOR_MODE[MODE])
    folder.mkdir(parents=True, exist_ok=True)
    for library in made.glob("*.so"):
        # Replaced, not rewritten: a running process may have the old one mapped.
        shutil.copy2(library, folder / (library.name + ".new"))
        (folder / (library.name + ".new")).replace(folder / library.name)


class Build(build_ext):
    """Extensions on two cores, then the simulator beside them."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or min(2, os.cpu_count() or 1)

    def build_extensions(self):
        # Two extensions that compile one file at the same time write the same object: one may link it empty.
        made = self.compiler.compile(
            [SHARED], output_dir=self.build_temp, extra_postargs=COMMON + COMPILE[MODE], debug=self.debug)
        for extension in self.extensions:
            if extension.name in NEEDS_SHARED:
                extension.extra_objects = [*extension.extra_objects, *made]
        super().build_extensions()

    def run(self):
        super().run()
        package = ROOT / "acl" if self.inplace else Path(self.build_lib) / "acl"
        simulator_build(package / "sim" / "lib")


def main() -> None:
    if MODE not in COMPILE:
        raise SystemExit(f"ACLPOOL_BUILD must be one of {', '.join(COMPILE)}, not {MODE!r}")
    Cython.Compiler.Options.warning_errors = True
    setup(
        license="Apache-2.0",
        ext_modules=cythonize(
            extensions(),
            compiler_directives=DIRECTIVES,
            build_dir=f"build/cython-{MODE}",
            include_path=["."],
            nthreads=CYTHON_PROCESSES,
        ),
        cmdclass={"build_ext": Build},
    )


main()
