#!/usr/bin/env python3
"""Runs clang-tidy with the short list of .clang-tidy over the library and the command line (src/, apps/), a few files at
once. Needs a configured build folder for its compile_commands.json. About 2 s a file. Called by scripts/test.sh.

  scripts/check_tidy.py --build build/release [FILE...]
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="folder with compile_commands.json")
    parser.add_argument("files", nargs="*", help="only these")
    arguments = parser.parse_args()
    database = ROOT / arguments.build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"check_tidy.py: no {database}; configure first: cmake --preset release")
    wanted = [pathlib.Path(f).resolve() for f in arguments.files]
    files = sorted({pathlib.Path(entry["file"]) for entry in json.loads(database.read_text())})
    files = [f for f in files if (f in wanted if wanted else f.is_relative_to(ROOT / "src") or f.is_relative_to(ROOT / "apps"))]
    if not files:
        sys.exit("check_tidy.py: no file of the build is meant; allowed: sources of the library or of the command line")

    def tidy(file):
        command = ["clang-tidy", "-p", str(database.parent), "--quiet", "--extra-arg=-Wno-unknown-warning-option", str(file)]
        return file, subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, result in pool.map(tidy, files):
            if result.returncode != 0:
                failed += 1
                print(f"{file.relative_to(ROOT)}:\n{result.stdout}{result.stderr}", flush=True)
    print(f"clang-tidy: {len(files)} files, {failed} with problems")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
