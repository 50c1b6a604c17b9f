#!/bin/sh
# Documents and editor files that are made from tables must be up to date: generated.sh SHARDC ROOT [update]
shardc=$1 root=$2 update=${3:-} failed=0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# made WHAT FILE
made() {
  "$shardc" reference "$1" >"$work/new" || failed=1
  cmp -s "$work/new" "$root/$2" && return
  if [ "$update" = update ]; then cp "$work/new" "$root/$2" && echo "$2: updated"
  else echo "$2 is not what \`shardc reference $1\` writes; run: tests/docs/generated.sh SHARDC ROOT update"; failed=1
  fi
}
made settings docs/settings.md
made operators docs/operators.md
made errors docs/errors.md
made families docs/kernels/families.md
made textmate editors/shardc.tmLanguage.json
made vim editors/vim/syntax/shard.vim
"$shardc" reference nothing 2>/dev/null && { echo "reference nothing: no error"; failed=1; }
exit $failed
