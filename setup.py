"""Builds the extensions (every `acl/**/*.pyx`) and the simulator; metadata is in pyproject.toml.

`ACLPOOL_BUILD` chooses the build: release (default), debug (invariant checks after every mutation),
sanitize (AddressSanitizer and UBSan), tsan (ThreadSanitizer), coverage.  Needs gcc (or clang) and
Cython 3; no CANN, no NumPy.  CC, CFLAGS and LDFLAGS are obeyed; `MAX_JOBS` says how many compilers run
at a time (default: one for each core).

`python setup.py build_ext --inplace --only acl.core._order,simulator` builds only what it names.
"""

import gzip
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

# The address of the repository, without a slash at its end.  Who publishes the package fills it in, only here.
HOME = ""
ROOT = Path(__file__).parent.resolve()
MODE = os.environ.get("ACLPOOL_BUILD") or "release"
# -g1 keeps what a sanitizer shows, the lines of a stack, and takes two thirds of the time of -g.
COMPILE = {
    "release": ["-O2", "-g0", "-DNDEBUG"],
    "debug": ["-O1", "-g", "-UNDEBUG", "-DACL_POOL_DEBUG=2"],
    "sanitize": [
        "-O1",
        "-g1",
        "-UNDEBUG",
        "-fno-omit-frame-pointer",
        "-DACL_POOL_DEBUG=2",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
    "tsan": ["-O1", "-g1", "-UNDEBUG", "-fsanitize=thread"],
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
    "_core", "pool._pool", "pool._registry", "core._arena", "core._asleep", "core._captures", "core._check",
    "core._climb", "core._driver", "core._guard", "core._oom", "core._order", "core._pages", "core._place",
    "core._record", "core._tally", "core._trim", "core._turns", "inside._books",
)
NEEDS_SHARED = {"acl.tools._rig", "acl.adapters.pluggable._door", *(f"acl.{name}" for name in ALLOCATOR)}
# Written in C beside a module.
WITH_C = {
    "acl.bind.generated._libacl": "acl/bind/**/*.c",
    "acl.adapters.pluggable._door": "acl/adapters/pluggable/*.c",
    "acl.adapters.onnxruntime._ort": "acl/adapters/onnxruntime/*.c",
    "acl.adapters.vllm.vllm_ascend_C": "acl/adapters/vllm/*.c",
}
# Large, generated, and never hot.
SMALL = {"acl.bind.generated._libacl": ["-O1"]}
# What is declared inline is inlined, and nothing else: a hit in the pool's cache then saves no register.
# Compilers other than gcc do not know all of these flags; `Build.accepted` leaves out the others.
SMALL["acl._core"] = [
    "-DCYTHON_INLINE=inline __attribute__((always_inline))",
    "-falign-functions=64",
    "-fno-inline-functions-called-once",
    "-fno-inline-small-functions",
    "-fno-inline-functions",
    "-fno-partial-inlining",
]
# A framework's exception passes through the frames of what it called.
ALWAYS = {"acl.adapters.pluggable._door": ["-fexceptions"]}
EARLIEST = 315532800        # 1980, where the dates of zip files begin: of files whose date is not told
SIMULATOR = "simulator"     # its name in --only
GENERATED = Path("acl/pyacl/generated")
DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": True,
    "linetrace": MODE == "coverage",
}


def module_name(source: Path) -> str:
    """The module that a file makes: that of its path, but for pyACL's own, which `acl` holds."""
    parts = source.with_suffix("").parts
    if source.parent == GENERATED and not source.name.startswith("_"):
        parts = ("acl", source.stem)
    return ".".join(parts)


def extensions() -> list[Extension]:
    """One extension for each .pyx, with the C files that belong to it."""
    found = []
    for path in sorted((ROOT / "acl").rglob("*.pyx")):
        source = path.relative_to(ROOT)
        name = module_name(source)
        extra = sorted(str(c.relative_to(ROOT)) for c in ROOT.glob(WITH_C[name])) if name in WITH_C else []
        headers = [str(h.relative_to(ROOT)) for h in sorted((ROOT / "acl").rglob("*.h"))]
        found.append(
            Extension(
                name,
                [str(source), *extra],
                include_dirs=["acl/include", "acl"],
                libraries=["dl", "pthread"],
                extra_compile_args=COMMON + COMPILE[MODE] + ALWAYS.get(name, []),
                extra_link_args=LINK[MODE],
                depends=[h for h in headers if "/sim/" not in h] + [SHARED] * (name in NEEDS_SHARED),
            )
        )
    return found


def simulator_module():
    """acl/sim/build.py, found by its path as `acl` cannot be imported yet."""
    spec = importlib.util.spec_from_file_location("simulator_build", ROOT / "acl/sim/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulator_build(folder: Path, processes: int) -> None:
    """Build the simulator and keep its libraries in this folder."""
    made = simulator_module().build(ROOT / f"build/simulator-{MODE}", SIMULATOR_MODE[MODE], processes)
    folder.mkdir(parents=True, exist_ok=True)
    for library in made.glob("*.so"):
        # Replaced, not rewritten: a running process may have the old one mapped.
        shutil.copy2(library, folder / (library.name + ".new"))
        (folder / (library.name + ".new")).replace(folder / library.name)


def embed_signatures() -> None:
    """Right signatures in the docstrings of classes.

    Cython leaves `self` out of the list but still counts it, so a `*` comes one argument too late.
    """
    from Cython.Compiler import AutoDocTransforms

    class Signatures(AutoDocTransforms.EmbedSignature):
        def _fmt_arglist(self, args, npoargs=0, npargs=0, pargs=None, nkargs=0, kargs=None, hide_self=False):
            if hide_self:
                args = [arg for arg in args if not arg.entry.is_self_arg]
                npargs = len(args) - nkargs - npoargs
            return super()._fmt_arglist(args, npoargs, npargs, pargs, nkargs, kargs)

    AutoDocTransforms.EmbedSignature = Signatures


def generate_c(extensions: list[Extension], processes: int) -> None:
    """Make the C file of each extension whose Cython sources changed, and put it in their place.

    All builds share these files but that for coverage, in which each line reports itself.
    """
    import Cython.Compiler.Options
    from Cython.Build import cythonize

    Cython.Compiler.Options.warning_errors = True
    embed_signatures()
    made = cythonize(
        extensions,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython-coverage" if MODE == "coverage" else "build/cython",
        include_path=["."],
        cache="CYTHON_CACHE_DIR" in os.environ,      # several checkouts may share what was made
        # Workers are forked; from 3.14 on they would start this file again.
        nthreads=processes if len(extensions) > 1 and sys.version_info < (3, 14) else 0,
    )
    by_name = {extension.name: extension for extension in made}
    for extension in extensions:
        extension.sources = by_name[extension.name].sources
        extension.depends = by_name[extension.name].depends


class Build(build_ext):
    """The extensions, then the simulator beside them.  C files are made here, so metadata needs none."""

    user_options = [
        *build_ext.user_options,
        ("only=", None, "build only these modules, packages, or `simulator`, comma-separated"),
    ]

    def initialize_options(self):
        super().initialize_options()
        self.only = None

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or simulator_module().cores()

    def chosen(self) -> set[str]:
        """What `--only` names: modules, all modules of a package, the simulator."""
        names = {name for name in self.only.split(",") if name == SIMULATOR}
        for wanted in set(self.only.split(",")) - names:
            found = {e.name for e in self.extensions if e.name == wanted or e.name.startswith(wanted + ".")}
            if not found:
                raise SystemExit(f"--only: expected a module, a package with modules or {SIMULATOR!r}, not {wanted!r}")
            names |= found
        return names

    def accepted(self, flags: list[str]) -> list[str]:
        """Return those of the flags that the compiler knows."""
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / "probe.c"
        probe.write_text("int probe;\n")
        command = [*self.compiler.compiler_so, "-Werror", "-c", str(probe), "-o", str(folder / "probe.o")]
        return [flag for flag in flags if subprocess.run([*command, flag], capture_output=True).returncode == 0]

    def build_extensions(self):
        for extension in self.extensions:
            if extension.name in SMALL and MODE == "release":
                extension.extra_compile_args += self.accepted(SMALL[extension.name])
        # Two extensions that compile one file at the same time write the same object: one may link it empty.
        made = self.compiler.compile(
            [SHARED], output_dir=self.build_temp, extra_postargs=COMMON + COMPILE[MODE], debug=self.debug)
        for extension in self.extensions:
            if extension.name in NEEDS_SHARED:
                extension.extra_objects = [*extension.extra_objects, *made]
        super().build_extensions()

    def run(self):
        names = self.chosen() if self.only else None
        if names is not None:
            self.extensions = [extension for extension in self.extensions if extension.name in names]
        logging.info("making C of %d modules, %d at a time", len(self.extensions), self.parallel)
        generate_c(self.extensions, self.parallel)
        logging.info("compiling the modules")
        super().run()
        if names is None or SIMULATOR in names:
            logging.info("compiling the simulator")
            package = ROOT / "acl" if self.inplace else Path(self.build_lib) / "acl"
            simulator_build(package / "sim" / "lib", self.parallel)


class Sdist(sdist):
    """The source archive: two builds of the same files are the same bytes."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        if format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)
        date = int(os.environ.get("SOURCE_DATE_EPOCH") or EARLIEST)

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = date, 0, 0, "root", "root"
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        target = Path(f"{base_name}.tar.gz")
        target.parent.mkdir(parents=True, exist_ok=True)
        # An empty name: gzip would store that of the file.
        with target.open("wb") as file, gzip.GzipFile("", "wb", mtime=date, fileobj=file) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                archive.add(base_dir, filter=plain)     # in the order of names
        return str(target)


def main() -> None:
    if MODE not in COMPILE:
        raise SystemExit(f"ACLPOOL_BUILD must be one of {', '.join(COMPILE)}, not {MODE!r}")
    # setuptools before 77 has only the free text.
    expression = int(setuptools.__version__.partition(".")[0]) >= 77
    licence = {"license_expression" if expression else "license": "Apache-2.0"}
    pages = {
        "Homepage": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues",
    }
    urls = {name: HOME + path for name, path in pages.items()} if HOME else {}
    setup(**licence, project_urls=urls, ext_modules=extensions(), cmdclass={"build_ext": Build, "sdist": Sdist})


main()
