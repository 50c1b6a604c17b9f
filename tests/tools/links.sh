#!/bin/sh
# bench/links: links.sh ROOT BUILD. Scripts replace ip, tc and mpirun: the test checks the commands, the use of the
# runs' output, and the refusals; bench/links removes all it created, also when it is stopped. Where this user may make
# network namespaces, also real links, which carry no more than their rate.
set -eu
root=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
command -v mpicc > /dev/null || { echo "skipped: no mpicc"; exit 77; }
fail() { echo "failed: $*"; exit 1; }
ends() { # status, words that must come | command
  want=$1 words=$2 got=0
  shift 2
  "$@" > said 2>&1 || got=$?
  [ "$got" = "$want" ] && grep -q -- "$words" said ||
    { cat said; fail "ended with $got, not $want and \`$words\`: $*"; }
}
mkdir bin bare
cat > bin/ip <<'END'
#!/bin/sh
# Namespaces as lines of a file. In them run: mpirun; both ends of a stream, whose answers are given; nothing else.
echo "ip $*" >> "$STAND_IN/log"
[ "$1 $2" != "netns add" ] || [ ! -e "$STAND_IN/nobody" ] ||
  { echo "mkdir /run/netns failed: Permission denied" >&2; exit 1; }
[ "$1 $2" = "netns exec" ] || exit 0
shift 3
case $* in mpirun*) exec "$@" ;; *take* | *give*) echo '{"rate": 1.2e8, "processor": 5e-10}' ;; esac
END
cat > bin/tc <<'END'
#!/bin/sh
# Two nodes: each call for both finds 400 kB more on their links.
echo "tc $*" >> "$STAND_IN/log"
case $* in
*netem*) exit 2 ;;
*'-s -j'*)
  n=$(cat "$STAND_IN/n")
  echo $((n + 1)) > "$STAND_IN/n"
  echo "[{\"bytes\": $((n / 2 * ${EACH:-400000}))}]" ;;
esac
END
cat > bin/mpirun <<'END'
#!/usr/bin/env python3
import json, os, sys, time
a = sys.argv
if os.path.exists(os.environ['STAND_IN'] + '/slow'): time.sleep(60)
used, out = next(w for w in a if w.endswith('/used')), a[a.index('--out') + 1]
os.makedirs(out)
ms, waited = (1000, 450) if 'off.exe' in ' '.join(a) else (610, 60)
for r in '01': json.dump({'wall': 4, 'user': 2, 'system': 0.4}, open(f'{used}.{r}', 'w'))
with open(out + '/metrics.jsonl', 'w') as f:
    for k in range(4):
        f.write(json.dumps({'step': k + 1, 'ms': ms + (k < 2) * 500, 'waited_ms': waited + (k < 2) * 300}) + '\n')
END
chmod +x bin/*
cat > m.shard <<'END'
use "std"
dims { Batch; Embed = 64; Layers = 2 }
model Small {
  input x [Batch, Embed] f32
  stack h [Layers] of Block
  loss mean[*](h(x))
}
layer Block(x: [Batch, Embed]) -> [Batch, Embed] {
  sub fc = Linear[Embed -> Embed]
  return x + fc(x)
}
train t for Small {
  batch 4
  steps 20
  data columns(x = "x.npy")
  optim sgd lr = 0.1
}
machine nodes {
  node cpus = 1
  link inter = 125MB/s
}
plan off for Small {
  on nodes nodes = 2
  mesh data = 2
  place Batch -> data
  zero 3 over data
}
plan on for Small {
  on nodes nodes = 2
  mesh data = 2
  place Batch -> data
  zero 3 over data prefetch = 1 overlap = on
}
END
echo 0 > n
links() { STAND_IN="$dir" PATH="$dir/bin:$PATH" "$root/bench/links" --build "$build" "$@"; }
only_off() { links --model m.shard --plan off --steps 4; }
small() { links --model m.shard --plan off --plan on --steps 4 --rounds 2 "$@"; }
clean() { # everything created is removed again
  made=$(sed -n 's/^ip netns add //p' log | sort) gone=$(sed -n 's/^ip netns del //p' log | sort)
  [ -n "$made" ] && [ "$made" = "$gone" ] || { cat log; fail "left behind"; }
  : > log
}
ends 0 '| off | 1.000 s (1.000 .. 1.000) | 0.450 s (0.450 .. 0.450) | 1.82 |' \
  small --rate 100mbit --rate balanced --table table --json all
grep -q '^650mbit, no delay' table || fail "$(cat table)"
grep -q '| on | 0.610 s (0.610 .. 0.610) | 0.060 s (0.060 .. 0.060) | 1.11 |' table || fail "$(cat table)"
grep -q 'computation 0.550 s, communication 0.450 s' table || fail "$(cat table)"
python3 -c 'import json; a = json.load(open("all"))[0]["plans"]; assert a[0]["planned"] > a[1]["planned"] > 0.55, a'
grep -q 'tc -n .* tbf rate 100mbit burst 56000 ' log || fail "$(cat log)"
clean
export EACH=400
ends 1 'they went elsewhere' only_off
unset EACH
ends 1 'fast. is no rate' links --rate fast
ends 1 'this kernel has no netem' links --delay 1ms
ends 1 'is for 2 ranks, not 4' small --ranks 4
ends 2 'needs --plan' links --model m.shard
ends 2 'spread evenly' links --ranks 3 --nodes 2
: > log
touch nobody
ends 1 'cannot be made, root can: ip netns add .*: Permission denied' small
rm nobody
python=$(python3 -c 'import sys; print(sys.executable)')
for t in ip tc mpirun; do
  rm -rf bare && mkdir bare
  for k in ip tc mpirun; do [ $k = $t ] || ln -s "$dir/bin/$k" bare/$k; done
  ends 1 "$t is not there" env STAND_IN="$dir" PATH="$dir/bare" "$python" "$root/bench/links" --build "$build"
done
: > log
touch slow
export STAND_IN="$dir"
PATH="$dir/bin:$PATH" "$root/bench/links" --build "$build" --model m.shard --plan off > said 2>&1 & pid=$!
while ! grep -q 'ip netns exec .* mpirun' log; do kill -0 $pid || { cat said; fail "ended too early"; }; sleep 0.1; done
kill $pid
wait $pid && fail "stopped, and ends with 0"
clean
if ip netns add shardc-test-$$ 2> /dev/null && ip netns del shardc-test-$$ && command -v mpirun tc > /dev/null; then
  ends 0 '^200mbit: TCP from node to node carried' "$root/bench/links" --build "$build" --check --rate 200mbit --ranks 3
else echo "real links: skipped, this user cannot make network namespaces"; fi
