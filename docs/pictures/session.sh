#!/bin/bash
# Plays docs/session.txt: what a new user would try, on a machine with a GPU and PyTorch.
# Usage: session.sh, with gpufence and torch_job.py's folder in reach; commands and answers go to stdout.
set -u
cd "$(dirname "$0")" || exit 1
export COLUMNS=112

try() {
  echo "$ $*"
  timeout 40 bash -c "$*" 2>&1
  echo
}

try "nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv,noheader"
try "gpufence run --memory 4GiB -- nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv,noheader"
try "gpufence run --memory 4GiB -- python3 -c 'import torch; torch.empty(5 << 30, dtype=torch.uint8, device=\"cuda\")' 2>&1 | tail -1 | cut -c1-110"
echo "$ gpufence run --memory 8GiB --cores 40 --container trainer -- python3 torch_job.py 12 4096 9 &"
begun=$(mktemp)
gpufence run --memory 8GiB --cores 40 --container trainer -- python3 torch_job.py 12 4096 9 >"$begun" &
until grep -q training "$begun"; do sleep 0.1; done
sleep 2 # its first steps load kernels
echo
try "gpufence status"
try "gpufence top --once --interval 1"
try "gpufence set trainer --cores 10 --memory 6GiB"
try "gpufence top --once --interval 1"
try "gpufence export --once | grep '^gpufence_[mc].*limit'"
try "gpufence set trainer --memory 10GBB"
wait
rm "$begun"
try "gpufence run --memory 4GiB -- gpufence doctor"
