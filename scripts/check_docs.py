#!/usr/bin/env python3
"""Documents must not promise what is not there: every relative link, every #heading of a link, and every `path/in/the/tree`
in backticks must exist. Called by ctest (`check_docs`, `check_docs_self_test`) and by hand.
"""
import argparse
import pathlib
import re
import sys
import tempfile

TREE = r"(?:src|include|apps|tests|bench|docs|programs|scripts|cmake)/"
PATH = re.compile(r"`(" + TREE + r"[\w./*{},+-]*)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~)")


def anchor(heading):
    """The id that a heading gets when it is shown as a page."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


def prose(path):
    """(line number, text) of what stands outside of code fences."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def anchors(path):
    return {anchor(line.lstrip("#")) for _, line in prose(path) if line.startswith("#")}


def expand(pattern):
    """a/{b,c}.h -> a/b.h, a/c.h"""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    return [p for choice in match[1].split(",") for p in expand(pattern[:match.start()] + choice + pattern[match.end():])]


def check(root):
    problems, checked = [], 0
    skip = {"build", "runs", ".git", ".venv"}
    for path in sorted(root.rglob("*.md")):
        name = path.relative_to(root)
        if name.parts[0] in skip or name.parts[0].startswith("build"):
            continue
        for number, line in prose(path):
            for match in LINK.finditer(line):
                target = match[1] or match[2]
                if re.match(r"[a-z]+:", target):
                    continue
                checked += 1
                file, _, heading = target.partition("#")
                to = (path.parent / file).resolve() if file else path
                if not to.exists():
                    problems.append(f"{name}:{number}: no file {target}")
                elif heading and to.suffix == ".md" and heading not in anchors(to):
                    problems.append(f"{name}:{number}: {target}: no such heading")
            for pattern in [p for match in PATH.finditer(line) for p in expand(match[1])]:
                checked += 1
                if not any(root.glob(pattern.rstrip("/"))):
                    problems.append(f"{name}:{number}: no file `{pattern}`")
    return problems, checked


SELF_TEST = [
    ({"a.md": "# A b\n[x](docs/b.md#two-words) `src/x.cc` `src/*.cc` `src/{x,y}.cc` `build/none`\n```\n[x](none)\n```\n",
      "docs/b.md": "## Two words!\n[up](../a.md#a-b) [far](https://example.org/none)\n", "src/x.cc": "", "src/y.cc": ""}, None),
    ({"a.md": "[x](none.md)\n"}, "no file none.md"),
    ({"a.md": "[x](#none)\n"}, "no such heading"),
    ({"docs/a.md": "![x](none.svg)\n"}, "no file none.svg"),
    ({"a.md": "see `src/none.cc`\n"}, "no file `src/none.cc`"),
    ({"a.md": "see `src/{x,y}.cc`\n", "src/x.cc": ""}, "no file `src/y.cc`"),
]


def self_test():
    failed = 0
    for files, expected in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found, _ = check(root)
            if not (found == [] if expected is None else len(found) == 1 and expected in found[0]):
                failed += 1
                print(f"self-test: expected {expected!r}, found {found}")
    print(f"self-test: {len(SELF_TEST) - failed} passed, {failed} failed")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="plant each kind of violation and see it found")
    if parser.parse_args().self_test:
        sys.exit(1 if self_test() else 0)
    problems, checked = check(pathlib.Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    print(f"{checked} links and paths, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
