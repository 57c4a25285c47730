#!/usr/bin/env python3
"""Plants the faults of scripts/mutants.py in the sources, one by one, and shows that the tests fail for each.

Works on a copy of the tree in build/mutate/tree with a build folder of its own; the working tree is never touched. The
named tests must pass before any fault is planted. Per mutant only what the named tests need is rebuilt. Ends with a table
and `N passed, N failed` (passed: the tests caught the fault); exit code 1 if a fault survives, does not compile, or its
text is not found exactly once.

  scripts/mutate.py                  all of them
  scripts/mutate.py --only TEXT      those whose name or file contains TEXT
  scripts/mutate.py --list           show them; also checks that each text is found exactly once
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutants import MUTANTS  # noqa: E402

TREE = ROOT / "build" / "mutate" / "tree"
BUILD = ROOT / "build" / "mutate" / "build"
TIMEOUT = 120  # seconds a test may take; a fault that makes it hang is caught


def copy_tree():
    """Brings the copy up to date with the working tree, without touching files that are the same (so ninja sees none)."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    for path in [p for p in TREE.rglob("*") if p.is_file()]:
        if str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name in wanted:
        target = TREE / name
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


def build(targets):
    """None if it builds, else the end of what the compiler said."""
    command = ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count()), "--target", *sorted(targets)]
    result = subprocess.run(command, capture_output=True, text=True)
    return None if result.returncode == 0 else (result.stdout + result.stderr)[-3000:]


def first_failure(tests):
    """The first test that fails and how, or None. A test is the name of an executable and its arguments."""
    for test in tests:
        name, *arguments = test.split()
        try:
            command = [str(BUILD / "bin" / name), "--abort-after=1", *arguments]
            result = subprocess.run(command, capture_output=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"{name}: no end"
        if result.returncode != 0:
            return f"{name}: exit code {result.returncode}"
    return None


def targets_of(tests):
    return {test.split()[0] for test in tests}


def occurrences(mutant):
    path = ROOT / mutant["file"]
    return path.read_text(encoding="utf-8").count(mutant["old"]) if path.exists() else -1


def run_one(mutant):
    """(caught, what happened)"""
    count = occurrences(mutant)
    if count != 1:
        return False, "no such file" if count < 0 else f"its text is found {count} times, expected once"
    path = TREE / mutant["file"]
    original = path.read_text(encoding="utf-8")
    try:
        path.write_text(original.replace(mutant["old"], mutant["new"]), encoding="utf-8")
        message = build(targets_of(mutant["tests"]))
        if message is not None:
            return False, "does not compile:\n" + message
        failure = first_failure(mutant["tests"])
        return failure is not None, failure or "SURVIVED"
    finally:
        path.write_text(original, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names or files that contain this")
    parser.add_argument("--list", action="store_true", help="list the mutants and check that their texts are found")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if arguments.only in m["name"] or arguments.only in m["file"]]
    if not chosen:
        sys.exit(f"mutate.py: nothing contains '{arguments.only}'")
    if arguments.list:
        lost = [m for m in chosen if occurrences(m) != 1]
        for m in chosen:
            print(f"{'LOST' if m in lost else 'ok':5} {m['file']:32} {m['name']}  [{', '.join(m['tests'])}]")
        print(f"{len(chosen) - len(lost)} passed, {len(lost)} failed")
        sys.exit(1 if lost else 0)

    copy_tree()
    # ccache sees paths relative to the tree, so objects are shared between runs.
    os.environ.setdefault("CCACHE_BASEDIR", str(TREE.parent))
    subprocess.run(["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCODA_BUILD_APP=OFF", "-DCODA_WERROR=OFF"],
                   check=True, stdout=subprocess.DEVNULL)
    tests = sorted({test for m in chosen for test in m["tests"]})
    print(f"building {', '.join(sorted(targets_of(tests)))} without a fault", flush=True)
    if message := build(targets_of(tests)):
        sys.exit("mutate.py: the tree does not build:\n" + message)
    if failure := first_failure(tests):
        sys.exit(f"mutate.py: a test fails without any fault: {failure}")

    caught = 0
    for number, mutant in enumerate(chosen, 1):
        begun = time.time()
        good, what = run_one(mutant)
        caught += good
        print(f"[{number:2}/{len(chosen)}] {'caught' if good else 'MISSED':6} {time.time() - begun:5.1f} s  "
              f"{mutant['file']}: {mutant['name']} -> {what}", flush=True)
    print(f"{caught} passed, {len(chosen) - caught} failed")
    sys.exit(0 if caught == len(chosen) else 1)


if __name__ == "__main__":
    main()
