# shellcheck shell=sh
# Shared by tools/demo and tools/test: . "$root/tools/setup.sh"; setup_all "$root"
# Installs missing packages (Debian 12, Ubuntu 24.04: as root or with sudo), configures, builds into
# build/.
# Reports each action on stderr; returns quickly if nothing is missing. Must not: install a package that is installed.

say() { printf '%s\n' "$*" >&2; }

setup_fail() {
  say "error: $1"
  [ -z "${2:-}" ] || say "  = help: $2"
  exit 4
}

# One line per need: package, then a test that succeeds when the package is not needed.
setup_needs() {
  cat <<'NEEDS'
gcc             command -v gcc
libc6-dev       test -e /usr/include/stdio.h
cmake           command -v cmake
ninja-build     command -v ninja
flex            command -v flex
bison           command -v bison
llvm-19-dev     command -v llvm-config-19 && test -e "$(llvm-config-19 --includedir)/llvm-c/Core.h"
libcmocka-dev   test -e /usr/include/cmocka.h
python3         command -v python3
xz-utils        command -v xz
NEEDS
}

setup_missing() {
  setup_needs | while read -r package probe; do
    sh -c "$probe" > /dev/null 2>&1 || printf '%s ' "$package"
  done
}

# Runs a command as root: directly, or with sudo where there is one.
setup_as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo > /dev/null; then sudo "$@"
  else setup_fail "packages are missing and neither root nor sudo is at hand" "ask an administrator for: $setup_list"
  fi
}

setup_packages() {
  setup_list=$(setup_missing)
  [ -n "$setup_list" ] || return 0
  command -v apt-get > /dev/null || setup_fail "missing: $setup_list" \
    "install what these Debian packages hold, then run this again"
  say "These packages are missing and will be installed with apt-get: $setup_list"
  setup_as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 \
    || say "apt-get update failed; going on with the lists there are"
  # shellcheck disable=SC2086 # a list of words
  setup_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $setup_list >&2 ||
    setup_fail "apt-get could not install: $setup_list" "Debian 12 and Ubuntu 24.04 have them in their own archives"
  setup_list=$(setup_missing)
  [ -z "$setup_list" ] || setup_fail "still missing after the installation: $setup_list"
}

# A build folder that was moved with the tree, or made by another generator, is made anew.
setup_configured() {
  [ -f "$2/build.ninja" ] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$1" "$2/CMakeCache.txt"
}

# setup_build ROOT FOLDER [options of cmake]
setup_build() {
  setup_root=$1 setup_folder=$2
  shift 2
  if ! setup_configured "$setup_root" "$setup_folder"; then
    say "configuring in $setup_folder"
    rm -rf "$setup_folder"
    cmake -S "$setup_root" -B "$setup_folder" -G Ninja "$@" > "$setup_folder.log" 2>&1 ||
      { cat "$setup_folder.log" >&2; setup_fail "cmake failed"; }
    rm -f "$setup_folder.log"
  fi
  if ninja -C "$setup_folder" -n 2> /dev/null | grep -q 'no work to do'; then return 0; fi
  say "building (about two minutes the first time)"
  ninja -C "$setup_folder" > "$setup_folder/build.log" 2>&1 ||
    { tail -40 "$setup_folder/build.log" >&2; setup_fail "the build failed" "all of it: $setup_folder/build.log"; }
}

setup_all() {
  setup_packages
  setup_build "$1" "$1/build"
}
