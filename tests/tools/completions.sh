#!/bin/bash
# The man page and the completions: completions.sh SHARDC. Every command and option is in each; man and bash read them.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for part in man bash zsh fish; do "$1" reference $part > "$dir/$part"; done
for command in $("$1" help | sed -n 's/^  \([a-z]*\)  *.*/\1/p'); do
  for part in man bash zsh fish; do
    grep -q "\<$command\>" "$dir/$part" || { echo "failed: no $command in $part"; exit 1; }
  done
  for option in $("$1" help "$command" | sed -nE 's|^ +(-[a-zA-Z], )?(--[a-z-]+).*|\2|p'); do
    grep -q -- "$option" "$dir/bash" || { echo "failed: no $option of $command"; exit 1; }
  done
done
if command -v man > /dev/null; then
  said=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l "$dir/man" 2>&1 > "$dir/page")
  [ -z "$said" ] && [ "$(wc -L < "$dir/page")" -le 80 ] || { echo "failed: $said"; exit 1; }
fi
for shell in zsh fish; do
  if command -v $shell > /dev/null; then $shell -n "$dir/$shell"; fi
done
complete_() { # WORD..: what bash proposes for the last one
  bash --norc -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _shardc
    echo "${COMPREPLY[@]}"' - "$dir/bash" "$@"
}
[ "$(complete_ shardc com)" = compile ] && [ "$(complete_ shardc launch --nproc)" = --nproc-per-node= ] &&
  [ "$(complete_ shardc compile --nproc)" = "" ] || { echo "failed: completion of bash"; exit 1; }
