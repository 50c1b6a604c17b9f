#!/bin/bash
# The Debian package: package.sh CPACK BUILD [CHROOT]. It installs into an empty root, compiles a model that trains, and
# leaves no file when it is removed. With CHROOT (of debootstrap, with gcc and libc6-dev) the same inside of it.
set -eu
[ "$(id -u)" = 0 ] && command -v dpkg > /dev/null || exit 77
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardc_package_XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$1" -G DEB --config "$2/CPackConfig.cmake" -B "$dir" > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
package=("$dir"/shardc_*.deb)
root=${3:-$dir/root}
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" "$root/tmp"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
list() { (cd "$root" && find . -path ./var -prune -o -path ./proc -prune -o -print | sort); }
list > "$dir/before"
dpkg --root="$root" --force-depends -i "${package[0]}" > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
[ -z "${3:-}" ] || ! grep -q 'depends on' "$dir/log" || { cat "$dir/log"; exit 1; }
[ "$("$root/usr/bin/shardc" --version | head -1 | cut -d' ' -f2)" = \
  "$(dpkg-deb -f "${package[0]}" Version)" ] || { echo "failed: version of the package"; exit 1; }
for f in man/man1/shardc.1 bash-completion/completions/shardc zsh/vendor-completions/_shardc \
  fish/vendor_completions.d/shardc.fish doc/shardc/executable.md; do
  [ -s "$root/usr/share/$f" ] || { echo "failed: no $f"; exit 1; }
done
work=$dir
[ -z "${3:-}" ] || work=$(mktemp -d "$root/tmp/shardc_XXXXXX")
head -c 40000 "$root/usr/share/doc/shardc/ir.md" > "$work/text.txt"
cat > "$work/try" <<'END'
set -e
cd "$(dirname "$0")"
"$1/usr/bin/shardc" compile "$1/usr/share/shardc/examples/tiny.shard" -o tiny -q
./tiny train --data text.txt --steps 2 --out run --quiet | grep 'done after 2 steps'
END
if [ -n "${3:-}" ]; then chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp bash "/tmp/${work##*/}/try" ""
else env -i PATH=/usr/bin:/bin HOME="$dir" bash "$work/try" "$root"; fi
[ "$work" = "$dir" ] || rm -rf "$work" "$root/tmp/.cache"
dpkg --root="$root" --purge shardc > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
list | diff "$dir/before" - || { echo "failed: files are left"; exit 1; }
