#!/usr/bin/env bash
# Are the C++ files formatted as .clang-format says? Only files that git tracks. The style of clang-format changes from
# version to version; 14 (Debian 12) decides, others only report. `scripts/check_format.sh --fix` formats in place.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(git ls-files '*.h' '*.cc')
if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
  exit
fi
version=$(clang-format --version | grep -o 'version [0-9]*' | cut -d' ' -f2)
if clang-format --dry-run -Werror "${files[@]}"; then
  echo "${#files[@]} files are formatted"
elif [[ $version == 14 ]]; then
  echo "run scripts/check_format.sh --fix"
  exit 1
else
  echo "clang-format $version formats differently; 14 decides, so this is no failure"
fi
