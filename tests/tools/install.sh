#!/bin/sh
# The installed files work without the build: install.sh CMAKE BUILD. A model is compiled with the installed shardc, in
# an empty environment, and trained; nothing of it comes from the build tree.
set -eu
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardc install XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$1" --install "$2" --prefix "$dir/prefix" > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cd "$dir"
for f in bin/shardc lib/shardc/libshardrt.a lib/shardc/rt.h share/doc/shardc/executable.md \
  share/shardc/examples/tiny.shard share/shardc/editors/vim; do
  [ -e "prefix/$f" ] || { echo "failed: no $f"; exit 1; }
done
head -c 40000 prefix/share/doc/shardc/ir.md > text.txt
env -i PATH=/usr/bin:/bin HOME="$dir" prefix/bin/shardc compile prefix/share/shardc/examples/tiny.shard -o tiny \
  -v 2> said ||
  { cat said; exit 1; }
! grep -F "$2" said || { echo "failed: something of the build tree is used"; exit 1; }
printf 'use "gpt2"\nvariant Small of GPT2 { Embed = 96; Layers = 2; Heads = 2 }\n' > mine.shard # examples are a library
env -i PATH=/usr/bin:/bin HOME="$dir" prefix/bin/shardc check mine.shard | grep '^Small: '
env -i ./tiny train --data text.txt --steps 2 --out run --quiet | grep 'done after 2 steps'
