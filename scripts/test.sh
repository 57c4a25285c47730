#!/usr/bin/env bash
# Everything that must hold before a change lands: sets up, builds, and runs all tests; then the same code under clang
# with AddressSanitizer and UndefinedBehaviorSanitizer, the threaded parts under ThreadSanitizer, and the style checks.
# Under 25 minutes on 2 cores. Ends with a table of the steps and "N passed, N failed, N skipped"; exit code 0 only if no
# step failed. Called by hand and by .ci/run.
#
#   scripts/test.sh            everything
#   scripts/test.sh --quick    release build and its tests only
#   scripts/test.sh --no-setup no look at the installed packages
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
jobs=$(nproc)
quick=0 setup=1
for argument in "$@"; do
  case "$argument" in
    --quick) quick=1 ;;
    --no-setup) setup=0 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; allowed: --quick, --no-setup" >&2; exit 2 ;;
  esac
done

passed=0 failed=0 skipped=0 table="" started=$SECONDS

note() { table+=$(printf '%-9s %5s s  %s' "$1" "$2" "$3")$'\n'; }

# step NAME COMMAND...: runs it, times it, remembers how it ended; returns its status.
step() {
  local name=$1 begun=$SECONDS status
  shift
  printf '\n== %s\n' "$name"
  "$@"
  status=$?
  if ((status == 0)); then
    passed=$((passed + 1))
    note passed $((SECONDS - begun)) "$name"
  else
    failed=$((failed + 1))
    note FAILED $((SECONDS - begun)) "$name"
  fi
  return $status
}

skip() {
  skipped=$((skipped + 1))
  note skipped 0 "$1"
}

finish() {
  printf '\n== summary, %d s\n%s%d passed, %d failed, %d skipped\n' $((SECONDS - started)) "$table" "$passed" "$failed" "$skipped"
  exit $((failed > 0))
}

build() {  # build PRESET [TARGET...]
  local preset=$1
  shift
  cmake --preset "$preset" -DCODA_BUILD_TESTS=ON -DCODA_BUILD_APP=ON >"build/$preset.configure.log" 2>&1 ||
    { cat "build/$preset.configure.log"; return 1; }
  cmake --build "build/$preset" --parallel "$jobs" ${*:+--target "$@"}
}

tests() {  # tests PRESET CTEST_ARGUMENTS...: `no tests` is a failure
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" "$@"
}

# Only the tests with label `threads` are built and run: the rest of the code has one thread.
thread_sanitizer() {
  mkdir -p build
  cmake --preset tsan -DCODA_BUILD_TESTS=ON -DCODA_BUILD_APP=OFF >build/tsan.configure.log 2>&1 ||
    { cat build/tsan.configure.log; return 1; }
  local names
  mapfile -t names < <(ctest --test-dir build/tsan -N -L threads 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p')
  ((${#names[@]})) || { echo "no test has the label threads"; return 1; }
  cmake --build build/tsan --parallel "$jobs" --target "${names[@]}" && tests tsan -L threads
}

mkdir -p build
if ((setup)); then
  step "packages" scripts/setup.sh --tests || finish
fi
step "release: build" build release || finish
step "release: all tests" tests release
if [[ -x build/release/bin/coda ]]; then
  step "release: coda check --backend cpu" build/release/bin/coda check --backend cpu
else
  failed=$((failed + 1))
  note FAILED 0 "release: build/release/bin/coda is missing"
fi

if ((quick)); then
  for name in "format" "clang-tidy" "asan and ubsan" "tsan"; do skip "$name (--quick)"; done
  finish
fi

step "format" scripts/check_format.sh
step "clang-tidy" scripts/check_tidy.py --build build/release
if step "asan and ubsan, by clang: build" build asan; then
  step "asan and ubsan: unit tests" tests asan -L unit
  step "asan and ubsan: a part of coda check" build/asan/bin/coda check --backend cpu --filter residual_rmsnorm_partial
else
  skip "asan and ubsan: unit tests"
fi
step "tsan: threaded tests" thread_sanitizer
finish
