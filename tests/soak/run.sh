#!/bin/sh
# The long runs that the suite has short forms of: tests/soak/run.sh SHARDC [FOLDER_OF_RANKS_TESTS]   about an hour on two processors
set -e
shardc=$1 here=$(cd "$(dirname "$0")/.." && pwd)
python3 -B "$here/run/cover.py" "$shardc" all
python3 -B "$here/programs/ranks.py" "$shardc" 0 500
python3 -B "$here/run/kill.py" "$shardc" 30
python3 -B "$here/run/stops.py" "$shardc"
[ -z "$2" ] || "$2/ranks_test_zero" "$here/ranks" all
