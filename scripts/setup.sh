#!/usr/bin/env bash
# Installs what building, testing and the quick start need, from the distribution's own packages (Debian 12, Ubuntu 24.04
# or later). Quick when all is there: dpkg is asked first, and apt is not touched. Called by quickstart.sh and test.sh.
#
#   scripts/setup.sh                everything
#   scripts/setup.sh --train-only   what quickstart.sh needs: compiler, libraries, the training text
#   scripts/setup.sh --tests        what test.sh needs: the above, clang's tools, and OpenBLAS, which `coda bench` compares with
set -euo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

train=(g++ cmake ninja-build ccache git python3 libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev doctest-dev
       bible-kjv)
tests=(clang clang-format clang-tidy libopenblas0-pthread)

case "${1:-}" in
  --train-only) wanted=("${train[@]}") ;;
  --tests | "") wanted=("${train[@]}" "${tests[@]}") ;;
  -h | --help) usage; exit 0 ;;
  *) echo "setup.sh: unknown argument '$1'; allowed: --train-only, --tests" >&2; exit 2 ;;
esac

have() { [[ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup.sh: installing packages needs root; run this script as root, or install sudo" >&2
    exit 1
  fi
}

install_missing() {
  local missing=() package
  for package in "$@"; do have "$package" || missing+=("$package"); done
  ((${#missing[@]})) || return 0
  echo "== setup: installing ${missing[*]}"
  if [[ -z ${updated:-} ]]; then
    as_root apt-get -q update
    updated=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: this is no Debian or Ubuntu; install by hand: ${wanted[*]}" >&2
  exit 1
fi

install_missing "${wanted[@]}"
# The sanitizers' run-time library of clang is a package of its own, named after clang's version.
if [[ " ${wanted[*]} " == *" clang "* ]]; then
  install_missing "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
fi

cmake_version=$(cmake --version | sed -n '1s/[^0-9.]*//p')
if [[ $(printf '%s\n' 3.24 "$cmake_version" | sort -V | head -n 1) != 3.24 ]]; then
  echo "setup.sh: cmake $cmake_version is too old; 3.24 or later is needed (Debian 12 and Ubuntu 24.04 have it)" >&2
  exit 1
fi
echo "== setup: everything is there"
