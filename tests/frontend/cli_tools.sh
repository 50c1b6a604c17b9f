#!/bin/sh
# The commands around the compiler: fmt, check --json, explain, doctor. Usage: cli_tools.sh SHARDC EXAMPLES
shardc=$1 examples=$2 failed=0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# expect STATUS PATTERN ARGUMENTS..: shardc ends with STATUS and its output has a line like PATTERN; PATTERN -: no
# output
expect() {
  status=$1 pattern=$2; shift 2
  "$shardc" "$@" >out 2>&1; got=$?
  if [ $got != "$status" ]; then echo "shardc $*: status $got, not $status"; cat out; failed=1; fi
  if [ "$pattern" = - ]; then [ ! -s out ] || { echo "shardc $*: not silent"; cat out; failed=1; }
  elif ! grep -q -e "$pattern" out; then echo "shardc $*: no '$pattern'"; cat out; failed=1
  fi
}
check() { "$@" || { echo "failed: $*"; failed=1; }; }

# fmt
printf 'const a = (1\n' >bad.shard
printf 'const  a=1\n' >ugly.shard
expect 2 "needs FILE" fmt
expect 0 "^use .std.$" fmt "$examples/tiny.shard"
expect 0 - fmt --check "$examples"/*.shard
expect 3 "^ugly.shard$" fmt --check "$examples/tiny.shard" ugly.shard
expect 0 "^const  a = 1$" fmt ugly.shard
expect 0 - fmt -w ugly.shard
check grep -qx "const  a = 1" ugly.shard
printf 'const a=1' >in; "$shardc" fmt - <in >out; check grep -qx "const a = 1" out
"$shardc" fmt --check - <in >out; check [ $? = 3 ]
expect 1 "E0101" fmt -w bad.shard
check grep -qx "const a = (1" bad.shard
expect 4 "E0001" fmt absent.shard
head -c 4000 "$shardc" >run.exe; head -c 600 /dev/zero >zeros.shard; printf 'use "zeros"\n' >uses.shard
for command in check plan compile 'launch slurm'; do
  expect 4 "E0001.*run.exe. is an executable, and no model file" $command run.exe
  expect 4 "E0001.*zeros.shard. is no text" $command zeros.shard
done
expect 4 "E0001.*zeros.shard. is no text" check uses.shard
for command in check plan compile 'fit --scale=Embed'; do
  expect 4 "an example of shardc has this name: ./.*/gpt2.shard." $command examples/gpt2.shard
done

# check
expect 0 "^GPT2: 124,439,808 parameters" check "$examples/gpt2.shard"
expect 0 - check -q "$examples/gpt2.shard"
json='^{"schema":1,"models":\[{"name":"GPT2","parameters":124439808,"train":"[a-z0-9_]*"}'
expect 0 "$json" check --json "$examples/gpt2.shard"
expect 2 "has no option .--json" compile --json x.shard
cat >two.shard <<'MODEL'
use "std"
dims { Batch; In = 8; Out = 4; Wide }
model M {
  input x [Batch, In] f32
  input y [Batch] of Out
  sub wide = Linear[In -> Wide]
  sub head = Linear[Wide -> Out]
  loss cross_entropy[Out](head(relu(wide(x))), y)
}
train small { size Wide = 4; batch 8; steps 2; data columns(x = "x.npy", y = "y.npy"); optim sgd lr = 1e-3 }
train large { size Wide = 40000; batch 8; steps 2; data columns(x = "x.npy", y = "y.npy"); optim sgd lr = 1e-3 }
machine box { node cpus = 1 memory = 1MiB }
plan p for M { on box; micro 8 }
plan q for M { micro 8 }
MODEL
expect 3 "^2 plans: p with small (fits), p with large (does not fit), q with small, q with large$" check two.shard
expect 3 "^M with large: 520,004 parameters$" check two.shard
expect 3 "plan .p. with .large. needs " check two.shard
sed '/^plan/d; s/optim sgd lr = 1e-3 }$/optim sgd }/; /large/s/Wide =/Wode =/' two.shard >three.shard
expect 1 "three.shard:11:20" check three.shard
cat >other.shard <<'MODEL'
use "two"
plan r { mesh data = 2; place Batch -> data; micro 4 }
MODEL
expect 0 "^M with large: 520,004 parameters$" check other.shard   # of the file that it uses
sed 's/place Batch/place Bacth/' other.shard >wrong.shard
expect 1 "no dimension named .Bacth." check wrong.shard           # also without `for`
echo 'use "two"' >bare.shard
expect 0 "^M: 56 parameters$" check bare.shard

# no command writes over a file that it reads, by any name
cat >alone <<'MODEL'
use "std"
dims { Batch; In = 8 }
model M { input x [Batch, In]; param w [In] = 1; loss mean[*](x * w) }
train t { batch 8; steps 2; data columns(x = "x.npy"); optim sgd }
MODEL
cp alone alone.shard; ln -s alone.shard linked; printf '# no record\n' >records; printf 'a\nb\n' >lines
echo 'use "alone"' >user.shard
"$shardc" dump alone -o alone.ir || failed=1
cat alone alone.shard alone.ir records lines >before
while read -r line; do
  expect 4 "E0002" $line
done <<'LINES'
compile alone
compile alone --emit=ast -o alone
compile alone --emit=c -o alone
compile alone.shard -o linked
compile user.shard -o alone.shard
compile alone --tune-db=records -o records
plan alone --html alone
plan alone --svg alone
dump alone --after memory -o alone
opt alone.ir -p simplify -o alone.ir
tune alone -o alone
tune alone -o lines
launch slurm alone -o alone
LINES
cat alone alone.shard alone.ir records lines >after; check cmp before after

# explain
expect 0 "^softmax\[D\](x)" explain op:softmax
expect 0 "^fn softmax\[D\](x) {" explain op:softmax
expect 0 "^max\[D\](x)" explain op:max
expect 0 "of the IR" explain op:scatter
expect 0 "^op all_reduce of the IR (collective)" explain op:all_reduce
expect 0 "^op wait of the IR (messages in flight)" explain op:wait
expect 0 "plan: zero" explain setting:zero
expect 0 "^pass fuse" explain pass:fuse E0301
expect 2 "did you mean .op:softmax" explain op:sofmax
expect 2 "nothing is known about .E9999" explain E9999

# doctor
expect 0 "^target  *x86_64_v" doctor
expect 0 '^{"schema":1,"findings":\[{"name":"shardc","value":"[^"]*","found":true' doctor --json
SHARDC_LIB=/absent "$shardc" doctor >out; check [ $? = 4 ]
check grep -q "^runtime library  *not found (needed: always)" out
SHARDC_LIBCUDA=/absent/libcuda.so.1 expect 0 "^NVIDIA driver  *not found (needed: for GPUs)" doctor
standin=$(dirname "$shardc")/lib/shardc/emulate
if [ -f "$standin/libcuda.so.1" ]; then
  export SHARDC_LIBCUDA=$standin/libcuda.so.1 SHARDC_LIBNCCL=$standin/libnccl.so.2
  SHARDC_EMULATE_DEVICES=2 expect 0 "^NVIDIA driver .*libcuda.so.1, CUDA 12.4, 2 GPUs$" doctor
  expect 0 "^GPU 0 .*compute capability 9.0 (--target sm_90a), 8.0 GiB, 8 multiprocessors, 99 KiB" doctor
  expect 0 "^NCCL  *[0-9]" doctor
  SHARDC_EMULATE_SM=86 SHARDC_EMULATE_DRIVER=11000 expect 0 "compute capability 8.6 (--target sm_80)" doctor
  SHARDC_EMULATE_SM=103 expect 0 "compute capability 10.3 (--target sm_103a)" doctor
  SHARDC_EMULATE_SM=121 expect 0 "compute capability 12.1 (--target sm_90)" doctor
  SHARDC_EMULATE_SM=75 expect 0 "compute capability 7.5 (too old for shardc)" doctor
  SHARDC_EMULATE_DRIVER=10020 expect 0 "(its driver is too old for shardc)" doctor
  SHARDC_EMULATE_FAIL=cuInit=803 expect 0 "^NVIDIA driver  *cannot be used (needed: for GPUs)" doctor
  check grep -q "reboot" out
  SHARDC_EMULATE_FAIL=cuInit=803 expect 0 '"why":"the CUDA driver [^"\\]*","help":"[^"\\]*reboot' doctor --json
  SHARDC_EMULATE_DEVICES=0 expect 0 "finds no GPU" doctor
  unset SHARDC_LIBCUDA SHARDC_LIBNCCL
fi
# report
mkdir -p 'run <1>' old
for i in 1 2 3; do
  printf '{"schema":1,"step":%d,"samples":%d,"tokens":%d,"loss":%d.5,"lr":0.1,"ms":2}\n' $i $i $i $((9 - i)) \
    >>'run <1>/metrics.jsonl'
done
printf '{"schema":1,"step":1,"loss":4,"valid_loss":3.25}\nno metrics\n' >old/metrics.jsonl
expect 0 - report 'run <1>' old -o page.html
check grep -q 'run &lt;1>' page.html
check grep -q '1 lines of old' page.html
check grep -q '<td>6.5000</td>' page.html
check grep -q '<td>3.2500</td>' page.html
check sh -c '! grep -q "<script\|https\?://[^w]" page.html'
expect 0 'report.html: a page about 1 run' report old
check test -s report.html
expect 4 'E0001' report nowhere

exit $failed
