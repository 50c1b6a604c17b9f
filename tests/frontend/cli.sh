#!/bin/sh
# The command line of shardc: exit codes, streams, suggestions. Usage: cli.sh SHARDC EXAMPLES
shardc=$1 examples=$2 failed=0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# expect STATUS STREAM PATTERN ARGUMENTS..: shardc ends with STATUS and STREAM (out, err) has a line like PATTERN
expect() {
  status=$1 stream=$2 pattern=$3; shift 3
  "$shardc" "$@" >out 2>err; got=$?
  if [ $got != "$status" ]; then echo "shardc $*: status $got, not $status"; cat out err; failed=1; fi
  if ! grep -q -e "$pattern" "$stream"; then echo "shardc $*: no '$pattern' in std$stream"; cat out err; failed=1; fi
}

check() { "$@" || { echo "failed: $*"; cat err; failed=1; }; }

expect 2 err "Usage: shardc COMMAND"
expect 0 out "Usage: shardc COMMAND" help
expect 0 out "Usage: shardc COMMAND" --help
expect 0 out "--model=NAME" help compile
expect 0 out "--model=NAME" compile --help
expect 0 out "^shardc [0-9]" version
expect 0 out "^shardc [0-9]" --version
expect 2 err "did you mean .compile" complie
expect 2 err "did you mean .shardc compile x.shard" x.shard
expect 2 err "did you mean .--color" check --colour=never x.shard
expect 2 err "needs FILE" check
odd=$(printf 'e\033[31m\302\233')
cp "$examples/tiny.shard" "$odd.shard"
for words in "$odd" "help $odd" "explain $odd" "check --$odd x" "fmt --check $odd.shard" "data $odd x" \
    "dump $odd.shard --after $odd" "dump $odd.shard --after lower" "compile $odd.shard --target $odd" \
    "data info --from bytes $odd.shard" "compile $odd.shard -o $odd.out"; do
  "$shardc" $words >out 2>&1
  if LC_ALL=C grep -q "$(printf '\033')\|$(printf '\302\233')" out; then
    echo "shardc $words: control characters"; cat -v out; failed=1
  fi
done
expect 2 err "takes no argument" compile --timings=3 x.shard
expect 2 err "has no option .--verbose" check -v x.shard
expect 2 err ".--verbose. would be ignored" compile --emit=ir -v "$examples/tiny.shard"
expect 0 err "^(in .*) .* -o program" compile --quick --verbose "$examples/tiny.shard" --output=tiny
expect 2 err ".--plan. was given twice: .a. and .b." compile --plan a --plan b x.shard
expect 2 err "several are written .--only gemm,attention." tune --only gemm --only=attention x.shard
expect 2 err "several are written .--fix zero=1,2." plan --fix zero=1 --fix zero=2 x.shard
expect 0 out "^bytes of the rank" plan "$examples/tiny.shard" -q -q -D Seq=9 -D Seq=8 -D Embed=48 --model Tiny \
    --model=Tiny
expect 2 err "not of the form" compile -D Seq x.shard
expect 2 err "from 1 to 1024, not .0." compile "$examples/tiny.shard" --workers 0 --emit=ir -o -
expect 2 err "from 1 to 1024, not .2x." compile "$examples/tiny.shard" --workers 2x --emit=ir -o -
expect 2 err "and sm_80 is a GPU" compile "$examples/tiny.shard" --workers 2 --target sm_80 --emit=ir -o -
expect 0 out 'workers = 48,' dump "$examples/tiny.shard" --workers 48 --after fuse
cp out fused.ir
expect 0 out "^bytes of the rank" plan fused.ir
expect 2 err "made for 48 workers already" compile fused.ir --workers 2 --emit=ir -o -
expect 2 err "did you mean .llvm" compile --emit=lvm x.shard
expect 2 err "one of human, short, json" check --message-format=xml x.shard
expect 4 err "E0001.*cannot read .absent.shard" compile absent.shard
expect 4 err "E0001.*cannot read .absent.shard" check absent.shard
expect 4 err "E0001.*cannot read .absent.shard" plan absent.shard
expect 4 err "cannot read" check "$work"
SHARDC_PATH="$examples" "$shardc" check - <"$examples/tiny_zero.shard" | grep -q '4 plans' \
  || { echo 'check - of a redirected file'; failed=1; }
for both in "--json --html -" "--json --svg -" "--html - --svg -"; do
  expect 2 err "one of .--json., .--html -. and .--svg -.: each writes to stdout" plan "$examples/mlp.shard" $both
done
for plans in "" --plan=zero0,zero1,zero2,zero3; do
  n=$(SHARDC_PATH="$examples" "$shardc" plan - $plans <"$examples/tiny_zero.shard" | grep -c '^plan zero') || true
  [ "$n" = 4 ] || { echo "plan - $plans of a redirected file: $n plans"; failed=1; }
done
expect 0 out "^4 plans: cpu (fits), zero2 (fits), zero3_offload (fits)" check "$examples/plans.shard"
expect 0 err "write .dot\[S\](x, p)" check "$examples/ops.shard"
expect 4 err "E0002.*cannot write" compile --emit=ast -o /proc/half "$examples/gpt2.shard"
expect 4 err "help: its folder does not exist" plan "$examples/mlp.shard" --svg absent/x.svg
expect 4 err "help: it is a folder: name a file in it" dump "$examples/mlp.shard" -o "$work"
expect 4 err "help: a part of that path is a file" compile "$examples/mlp.shard" -o out/x
TMPDIR=$work/absent expect 4 err "help: .TMPDIR=FOLDER. names another folder" run "$examples/mlp.shard"
mkdir full                                  # the messages of the C compiler do not fit a full disk either
if unshare -rm mount -t tmpfs -o size=300k none full 2>err; then
  unshare -rm sh -c "mount -t tmpfs -o size=300k none full && TMPDIR=full '$shardc' compile --quick -o exe \
    '$examples/mlp.shard'" 2>err; check [ $? = 4 ]
  check grep -q "TMPDIR=FOLDER. names another folder" err
fi
if [ -e /dev/full ]; then
  expect 4 err "help: free some space" dump "$examples/mlp.shard" -o /dev/full
  expect 4 err "help: free some space" launch slurm "$examples/mlp.shard" -o /dev/full
fi
(ulimit -s 128; expect 4 err "the stack is limited to 128 KiB, and 8192 are needed" check "$examples/gpt2.shard"
  exit $failed) || failed=1
(ulimit -S -s 128; expect 0 out "" check "$examples/gpt2.shard"; exit $failed) || failed=1 # which is raised
(ulimit -f 1; expect 4 err "too large" dump "$examples/mlp.shard" -o large.ir; exit $failed) || failed=1
expect 0 out "^fuse" dump --list
# A dump keeps the facts of its target.
"$shardc" dump "$examples/mlp.shard" --target sm_80 --after place -o facts.ir
"$shardc" dump "$examples/mlp.shard" --target sm_80 --after select -o cut.ir
sed 's/ row = 1024,/ row = 512,/' facts.ir >edited.ir
expect 0 out "^target sm_80 .* row = 512," dump edited.ir --after fuse --target sm_80
expect 2 err "has facts of its own for sm_80, which .--target sm_90" dump edited.ir --after fuse --target sm_90
expect 0 out "" compile facts.ir --target sm_90 --emit=ir -o -
expect 2 err "is IR after .select.: its kernels are made for sm_80" compile cut.ir --target sm_90 --emit=c -o -
# Options that a call would ignore are refused, and numbers are whole words.
tiny=tiny.shard # a path may have spaces, lists of words are split
cp "$examples/tiny.shard" $tiny
for words in "dump --list --after fuse" "dump $tiny --diff lower fuse --after grad" \
    "dump $tiny --format html --func step" "compile $tiny --emit=ast --plan a" \
    "compile $tiny --emit=ast --quick" "compile $tiny --emit=c --quick" "compile $tiny --emit=ir -j 2" \
    "compile $tiny --emit=asm --equal 3" "compile $tiny --class first" \
    "run /bin/true --plan a" "run /bin/true -D Seq=3" "run /bin/true -j 2" "fmt --check -w $tiny"; do
  expect 2 err "would be ignored: " $words
done
"$shardc" dump "$examples/moe.shard" --plan stages -D Pairs=2 --class first --after memory -o first.ir
for words in plan "dump --after memory" equal tune "fit --scale Layers" "launch slurm" "compile --emit=c"; do
  expect 2 err "one target" $words $tiny --target x86,sm_80
  expect 2 err ".--target. needs NAME, and was given nothing" $words $tiny --target ""
done
expect 2 err "no target \`\`; targets" compile $tiny --target x86,
expect 2 err ".--exe. needs FILE, and was given nothing" launch slurm $tiny --exe ""
expect 2 err "a name is missing" plan $tiny --plan a,
expect 2 err "is about passes, and none runs" dump $tiny --workers 2
expect 1 err "all ranks run one program: leave .--class. out" dump $tiny --class first --after memory
expect 2 err "is IR of the class first" opt first.ir --class last
expect 4 err "help: a run is the folder that" report "$work"
expect 2 err "takes no file" dump --list "$tiny"
expect 2 err "is text, not dot" dump "$tiny" --diff lower fuse --format dot
expect 2 err "is not before .grad." dump "$tiny" --diff fuse grad
expect 2 err "is the standard input" fmt -w - </dev/null
for words in "compile $tiny --jobs" "run $tiny --ranks" "launch slurm $tiny --nproc-per-node" "verify $tiny --steps" \
    "equal $tiny --steps" "equal $tiny --seed" "tune $tiny --rounds" "tune $tiny --rivals" "opt $tiny --run-to" \
    "compile $tiny --workers"; do
  for number in 1e3 -1 99999999999999999999 0x2 3.0; do
    expect 2 err "takes a whole number from [01] to [0-9]*, not .$number.$" $words="$number"
  done
done
expect 2 err "Layers=... takes a whole number from 1 to [0-9]*, not .0." fit "$tiny" --scale Layers=0
expect 2 err "did you mean .fuse" dump x.shard --after fusee
expect 0 out "one operand's dimensions must contain" explain E0301
expect 0 out "contraction" explain op:dot
expect 0 out "25MiB" explain setting:zero
expect 0 out "future kernels" explain pass:fuse
expect 0 out "launch" explain R0101
expect 2 err "did you mean .setting:batch" explain setting:bach
expect 0 out "param wte \[Vocab, Embed\] ~" compile --emit=ast "$examples/gpt2.shard"

expect 1 err "E0602.*takes a whole number" dump "$examples/tiny.shard" --set train.steps=abc
expect 1 err "E0602.*one of constant, cosine" dump "$examples/tiny.shard" --set train.lr=cosin
expect 1 err "E0601" dump "$examples/tiny.shard" --set train.stesp=3
expect 0 out 'machine.node.memory = "14229176"' dump "$examples/plans.shard" --plan cpu \
  --set machine.node.memory=13.57MiB
expect 0 out 'machine.node.memory = "25600000000"' dump "$examples/plans.shard" --plan cpu \
  --set machine.node.memory=25.6GB
expect 0 out "^mesh data = 4, tensor = 2" dump "$examples/tiny_ranks.shard" --plan four --set plan.mesh.data=4
expect 0 out 'train.optim.betas = "0.5 0.75"' dump "$examples/tiny.shard" --set "train.optim.betas=[0.5, 0.75]"
expect 0 out "^after lower" dump "$examples/tiny.shard" -D Seq=32
for command in plan "compile --emit=ir" run; do
  expect 2 err "add .--target sm_80" $command "$examples/tiny.shard" --comm nccl
done
expect 2 err "one of local, mpi, nccl" plan "$examples/tiny_zero.shard" --comm tcp
[ "$(grep -c . err)" = 1 ] || { echo "plan --comm tcp: more than once"; cat err; failed=1; }
expect 2 err "cannot both be given" opt "$examples/tiny.shard" --run-to 1 --changes --func step
"$shardc" dump "$examples/tiny.shard" -o tiny.ir
expect 0 out "^after grad" dump tiny.ir --after grad
cp out grad.ir
expect 0 out "^after inline" opt --passes inline tiny.ir --output=-
printf 'dims {A=2}\n' >spaces.shard
check "$shardc" fmt --write spaces.shard
grep -q '^dims { A = 2 }' spaces.shard || { echo "fmt --write: not written"; cat spaces.shard; failed=1; }
expect 2 err "comes before" dump grad.ir --after simplify
expect 2 err "fixed already" dump grad.ir -D Seq=3

printf 'const a = (1\n' >bad.shard
expect 1 err "^error\[E0101\]: expected" check bad.shard
expect 1 err "^bad.shard:1:13: error\[E0101\]" check --message-format=short bad.shard
expect 1 err '"code":"E0101"' check --message-format=json bad.shard
"$shardc" check bad.shard 2>plain
"$shardc" check --color=always bad.shard 2>err
grep -q "$(printf '\033')" err || { echo "--color=always: no colour"; failed=1; }
sed "s/$(printf '\033')\[[0-9;]*m//g" err | cmp -s - plain || { echo "colour changes the text"; failed=1; }
NO_COLOR=1 "$shardc" check bad.shard 2>&1 | cmp -s - plain || { echo "NO_COLOR changes the text"; failed=1; }
"$shardc" compile --emit=ast bad.shard >/dev/null 2>&1; [ $? = 1 ] || { echo "ast of a bad file: status"; failed=1; }

# Every code that the compiler can give is explained.
root=$examples/..
for code in $(grep -rhoE '"[EWN][0-9]{4}"' "$root/frontend" "$root/ir" "$root/passes" "$root/codegen" | tr -d '"' \
  | sort -u); do
  "$shardc" explain "$code" >out 2>&1 || { echo "$code is not explained"; failed=1; }
done
exit $failed
