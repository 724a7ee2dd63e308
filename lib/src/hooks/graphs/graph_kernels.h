// What an executable graph makes the driver hold for its kernels when it is instantiated or
// changed: their stack, their code and the executable's own commands. Nothing of it waits for the
// launch. Must not know allocation nodes.
#pragma once

#include <stdint.h>

#include "hooks/contexts/context_cost.h"
#include "hooks/contexts/launch_memory.h"
#include "hooks/contexts/overhead.h"
#include "hooks/graphs/graph_needs.h"
#include "policy/charge.h"

namespace gpufence {

// What the commands of an executable take, at most: 2.5 KiB a node were seen for 5000 nodes, 160
// KiB for 20 of them. The driver keeps and reuses it when the executable ends.
constexpr uint64_t CommandBytes(uint64_t nodes) {
  return RoundUp((uint64_t{256} << 10) + nodes * 4096, kChunkBytes);
}

// Executables of fewer bring too little to be asked about each time.
constexpr uint64_t kManyNodes = 1024;

// Makes the call when what it may take fits. Away from the limit commands and code are not
// reserved: the next request that comes near it reads what they took. undo() is called, and
// CUDA_ERROR_OUT_OF_MEMORY returned, when the call took so much that it passed the limit.
template <typename Call, typename Undo>
CUresult CallWithKernels(const Hook& hook, const GraphNeeds& needs, Call call, Undo undo) {
  FencedDevice* device = hook.current_device();
  if (device == nullptr || needs.nodes == 0) return call();
  const uint64_t context = hook.context();
  const uint64_t growth_bytes = StackGrowthBytes(hook.fence(), device, context, needs.stack_bytes);
  const bool near_limit = device->account.IsNearLimit(growth_bytes + CommandBytes(needs.nodes));
  if (growth_bytes == 0 && !near_limit && !needs.has_unseen) {
    const CUresult rc = call();
    OverheadChanged(device);
    if (rc == CUDA_SUCCESS && needs.nodes >= kManyNodes) ReadIfGrownUnread(device);
    return rc;
  }
  const uint64_t foreseen_bytes = growth_bytes + (near_limit ? CommandBytes(needs.nodes) : 0);
  const CUresult rc = CallThatGrows(device, foreseen_bytes, call, undo);
  if (rc == CUDA_SUCCESS && growth_bytes > 0) {
    SetLaunchedStack(hook.fence(), device, context, needs.stack_bytes);
  }
  return rc;
}

}  // namespace gpufence
