#!/bin/sh
# One file per diagnostic: each says what `shardc check` must find, and nothing else may be found.
#   # expect: E0301 at 19:40         one line per error or warning; notes are not compared
# Usage: expect.sh SHARDC FILE...
shardc=$1 failed=0; shift
for file; do
  wanted=$(sed -n 's/^# expect: \([EW][0-9]*\) at \([0-9:]*\).*/\2 \1/p' "$file" | sort)
  found=$("$shardc" check --message-format=short "$file" 2>&1 |
    sed -n 's/^[^:]*:\([0-9]*:[0-9]*\): [a-z]*\[\([EW][0-9]*\)\].*/\1 \2/p' | sort)
  [ "$wanted" = "$found" ] && continue
  echo "$file: wanted [$wanted], found [$found]"
  "$shardc" check "$file"
  failed=1
done
exit $failed
