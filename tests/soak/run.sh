#!/bin/sh
# The long runs that the suite has short forms of: tests/soak/run.sh SHARDC [FOLDER_OF_TESTS]   over an hour on two
# processors
set -e
shardc=$1 here=$(cd "$(dirname "$0")/.." && pwd)
python3 -B "$here/run/cover.py" "$shardc" all
python3 -B "$here/programs/ranks.py" "$shardc" 0 500
python3 -B "$here/run/kill.py" "$shardc" 30
python3 -B "$here/run/kill.py" "$shardc" 40 stages
python3 -B "$here/run/moves.py" "$shardc" 30 5
python3 -B "$here/run/pipelines.py" "$shardc"
python3 -B "$here/run/stops.py" "$shardc"
python3 -B "$here/run/executable.py" "$shardc" "$here/../examples/tiny.shard" 100
python3 -B "$here/run/equal_faults.py" "$shardc" 2600
python3 -B "$here/run/hangs.py" "$shardc"
python3 -B "$here/run/opt_lines.py" "$shardc" 10
python3 -B "$here/gpu/loops.py" "$shardc" all
[ -n "$2" ] || exit 0
for where in processor gpu; do
  python3 -B "$here/run/offload_kill.py" "$shardc" "$2/run/libdie_on_host.so" 40 $where
done
PATH=/usr/bin:/bin SHARDC_CACHE_DIR='' "$2/codegen/codegen_test_layouts" sm_80 1 48
SHARDC_PATH=$here/../examples:$here/reference
export SHARDC_PATH
"$2/ranks/ranks_test_zero" "$here/ranks" all
"$2/ranks/ranks_test_models" "$here/ranks" all
"$2/ranks/ranks_pipe" "$here/ranks"
mkdir -p "$2/ranks/generated"
python3 "$here/programs/generate.py" 1000 1500 "$2/ranks/generated" 8
"$2/ranks/ranks_random" 1 2 "$2"/ranks/generated/p*.shard
for target in native sm_80; do SHARDC_CACHE_DIR='' "$2/codegen/codegen_test_sparse" $target 100 125; done
for target in native x86_64_v3; do
  for name in math elem row contract attention; do
    SHARDC_OPTIMIZE=all SHARDC_CACHE_DIR='' "$2/codegen/codegen_test_$name" $target
  done
done
