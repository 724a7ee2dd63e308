#!/bin/sh
# find_new_lib.sh: the yardstick of bench/findsyms.py, a stock way to find what a new driver adds: nm both libraries, then grep
# a table of hooked names once per exported name.  Usage: find_new_lib.sh HOOK_TABLE LIBRARY...
set -eu

if [ $# -lt 2 ]; then
  echo "usage: $0 HOOK_TABLE LIBRARY..." >&2
  exit 2
fi
table=$1
shift

for library in "$@"; do
  nm -D --defined-only "$library" | awk '{print $3}' | while read -r name; do
    if ! grep -q -w "$name" "$table"; then
      echo "$name"
    fi
  done
done
