#!/usr/bin/env python3
"""Holds the sources to the layers of the design: a folder may include only what it names, and nothing round a corner.

Called by ctest (tests `include_arrows`, `include_arrows_self_test`) and by hand. The two tables below are the one place
where the arrows stand: ARROWS for the folders, PUBLIC for the headers of include/coda/ (each belongs to one folder).
Arrows are transitive: what may include plan may include ir. An unknown folder or header is a failure, never a guess.
Also checked: headers open with a comment, then #pragma once, and have no `using namespace`; no third-party header is
seen by a user; files stay under MAX_LINES; nothing is left "to do".
"""
import argparse
import pathlib
import re
import sys
import tempfile

# folder of src/ (or apps/coda) -> folders it may include besides itself, not counting what those may include
ARROWS = {
    "base": [],
    "ir": ["base"],
    "grad": ["ir"],
    "rewrite": ["ir"],
    "plan": ["ir"],
    "compile": ["plan", "grad", "rewrite"],
    "cpu/kernels": ["base"],
    "cpu/vec": ["ir", "cpu/kernels"],
    "cpu/attention": ["ir", "cpu/kernels", "cpu/vec"],
    "cpu": ["plan", "cpu/kernels", "cpu/vec", "cpu/attention"],
    "cuda": ["plan"],
    "model": ["compile"],
    "train": ["model"],
    "check": ["plan"],
    "bench": ["cpu", "model"],
    "cuda/bench": ["bench"],
    "apps/coda": ["cpu", "train", "check", "bench"],
}

# header of include/coda/ -> the folder of src/ that implements it
PUBLIC = {
    "error.h": "base", "dtype.h": "base", "tensor.h": "base",
    "dim.h": "ir", "op.h": "ir", "graph.h": "ir", "program.h": "ir", "builder.h": "ir", "text.h": "ir",
    "interpret.h": "ir",
    "grad.h": "grad",
    "plan.h": "plan", "runtime.h": "plan", "machine.h": "plan",
    "cpu.h": "cpu",
    "check.h": "check",
}

ROOTS = ("include", "src", "apps", "tests", "bench", "scripts", "cmake", "python")
CODE = (".h", ".cc", ".cuh", ".cu", ".py", ".sh", ".cmake")
MAX_LINES = 600
THIRD_PARTY = ("fmt/", "spdlog/", "nlohmann/", "CLI/", "doctest/")
HEADER_MAY = ("nlohmann/json_fwd.hpp",)  # forward declarations cost nothing
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LEFT_OVER = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + "XX)\\b")
DEPENDENCY = re.compile(r"\bcoda::(\w+)")


def reachable(folder):
    """The folder and everything that it may include."""
    seen, todo = set(), [folder]
    while todo:
        f = todo.pop()
        if f not in seen:
            seen.add(f)
            todo += ARROWS[f]
    return seen


def folder_of(parts):
    """('src', 'cpu', 'vec', 'x.cc') -> 'cpu/vec'; None where everything may be included (tests, bench)."""
    if parts[0] == "apps":
        return "/".join(parts[:-1])
    return "/".join(parts[1:-1]) if parts[0] == "src" else None


def strip_comment(line):
    return line.split("//")[0]


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.problems = []

    def say(self, path, line, what):
        self.problems.append(f"{path.relative_to(self.root)}:{line}: {what}")

    def check_include(self, path, number, folder, quote, target):
        is_header = path.suffix in (".h", ".cuh")
        if quote == "<":
            if is_header and target.startswith(THIRD_PARTY) and target not in HEADER_MAY and (folder or "apps/")[:5] != "apps/":
                self.say(path, number, f"<{target}> in a header; third-party headers belong in .cc files")
            return
        if folder is None:
            return
        first, _, rest = target.partition("/")
        if not rest:
            if folder.startswith("apps/"):
                return  # an app's own header
            self.say(path, number, f'"{target}" is relative; write "folder/{target}" or "coda/{target}"')
            return
        if first == "coda":
            if rest not in PUBLIC:
                self.say(path, number, f'"{target}" is not in the table PUBLIC of scripts/check_includes.py')
                return
            layer = PUBLIC[rest]
        else:
            layer = target.rpartition("/")[0]
            if path.parts[len(self.root.parts)] == "include":
                self.say(path, number, f'"{target}": a public header may include only coda/*.h')
                return
        if layer not in ARROWS:
            self.say(path, number, f'"{target}": no folder {layer} in the table ARROWS of scripts/check_includes.py')
        elif layer not in reachable(folder):
            allowed = ", ".join(sorted(reachable(folder) - {folder})) or "only the standard library"
            self.say(path, number, f'{folder} may not include "{target}" (of {layer}); allowed: {allowed}')

    def check_header_form(self, path, lines):
        if not lines or not lines[0].startswith("//"):
            self.say(path, 1, "a header starts with a comment: what it is, who calls it, the invariant")
        code = [l for l in lines if l.strip() and not l.startswith("//")]
        if not code or code[0].strip() != "#pragma once":
            self.say(path, 1, "#pragma once must be the first line after the opening comment")
        for number, line in enumerate(lines, 1):
            if re.match(r"\s*using\s+namespace\b", line):
                self.say(path, number, "using namespace in a header")

    def check_file(self, path):
        parts = path.relative_to(self.root).parts
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_LINES:
            self.say(path, len(lines), f"{len(lines)} lines; split the file, the limit is {MAX_LINES}")
        for number, line in enumerate(lines, 1):
            if LEFT_OVER.search(line):
                self.say(path, number, f"'{LEFT_OVER.search(line).group(1)}': finish it or open an issue")
        if path.name == "CMakeLists.txt" and parts[0] == "src":
            self.check_cmake(path, lines, folder_of(parts))
        if path.suffix not in (".h", ".cc", ".cuh", ".cu"):
            return
        if path.suffix in (".h", ".cuh"):
            self.check_header_form(path, lines)
        if parts[:2] == ("include", "coda"):
            if len(parts) != 3 or parts[2] not in PUBLIC:
                self.say(path, 1, "is not in the table PUBLIC of scripts/check_includes.py")
                return
            folder = PUBLIC[parts[2]]
        else:
            folder = folder_of(parts)
        if folder is not None and folder not in ARROWS:
            self.say(path, 1, f"no folder {folder} in the table ARROWS of scripts/check_includes.py")
            return
        for number, line in enumerate(lines, 1):
            if match := INCLUDE.match(line):
                self.check_include(path, number, folder, *match.groups())

    def check_cmake(self, path, lines, folder):
        """The link arrows are the include arrows."""
        if folder not in ARROWS:
            return
        names = {f.replace("/", "_"): f for f in ARROWS}
        for number, line in enumerate(lines, 1):
            if not line.lstrip().startswith("#") and "alias" not in line.lower():
                for name in DEPENDENCY.findall(line):
                    if name not in names:
                        self.say(path, number, f"coda::{name} is the library of no folder in ARROWS")
                    elif names[name] not in reachable(folder):
                        self.say(path, number, f"{folder} may not link coda::{name}")

    def run(self):
        files = 0
        for top in ROOTS:
            for path in sorted((self.root / top).rglob("*")):
                if path.is_file() and (path.suffix in CODE or path.name == "CMakeLists.txt"):
                    files += 1
                    self.check_file(path)
        return files


# Each row: files of a small tree, and the words that one problem must contain (None: the tree is clean).
HEAD = "// What it is.\n#pragma once\n"
SELF_TEST = [
    ({"src/ir/a.cc": '#include "coda/error.h"\n#include "ir/b.h"\n#include <fmt/format.h>\n', "src/ir/b.h": HEAD}, None),
    ({"src/plan/a.cc": '#include "coda/dtype.h"\n', "tests/t.cc": '#include "plan/x.h"\n#include "t.h"\n'}, None),
    ({"src/base/a.cc": '#include "coda/graph.h"\n'}, "base may not include"),
    ({"src/ir/a.cc": '#include "plan/partition.h"\n'}, "ir may not include"),
    ({"src/cpu/kernels/a.cc": '  #  include "coda/op.h"\n'}, "cpu/kernels may not include"),
    ({"src/cpu/vec/a.cc": '#include "cpu/run.h"\n'}, "cpu/vec may not include"),
    ({"src/check/a.cc": '#include "train/loop.h"\n'}, "check may not include"),
    ({"include/coda/dtype.h": HEAD + '#include "coda/op.h"\n'}, "base may not include"),
    ({"include/coda/graph.h": HEAD + '#include "ir/eval.h"\n'}, "only coda/*.h"),
    ({"include/coda/graph.h": HEAD + "#include <fmt/format.h>\n"}, "third-party"),
    ({"include/coda/unheard_of.h": HEAD}, "not in the table PUBLIC"),
    ({"src/ir/a.cc": '#include "coda/unheard_of.h"\n'}, "not in the table PUBLIC"),
    ({"src/unheard_of/a.cc": ""}, "no folder unheard_of"),
    ({"src/ir/a.cc": '#include "b.h"\n'}, "relative"),
    ({"src/ir/b.h": "#pragma once\n"}, "starts with a comment"),
    ({"src/ir/b.h": "// What it is.\nint x;\n"}, "#pragma once must"),
    ({"src/ir/b.h": HEAD + "using namespace std;\n"}, "using namespace"),
    ({"src/ir/a.cc": "\n" * (MAX_LINES + 1)}, "the limit is"),
    ({"scripts/a.sh": "# TO" + "DO later\n"}, "finish it"),
    ({"src/ir/CMakeLists.txt": "coda_library(ir DEPS coda::plan)\n"}, "may not link"),
    ({"src/ir/CMakeLists.txt": "coda_library(ir DEPS coda::unheard_of)\n"}, "library of no folder"),
]


def self_test():
    failed = 0
    for files, expected in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            checker = Checker(folder)
            checker.run()
            found = checker.problems
            right = not found if expected is None else len(found) == 1 and expected in found[0]
            if not right:
                failed += 1
                print(f"self-test: {list(files)}: expected {expected!r}, found {found}")
    print(f"self-test: {len(SELF_TEST) - failed} passed, {failed} failed")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, help="the source tree")
    parser.add_argument("--self-test", action="store_true", help="plant each kind of violation and see it found")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(1 if self_test() else 0)
    checker = Checker(pathlib.Path(arguments.root).resolve())
    files = checker.run()
    for problem in checker.problems:
        print(problem)
    print(f"{files} files, {len(checker.problems)} problems")
    sys.exit(1 if checker.problems else 0)


if __name__ == "__main__":
    main()
