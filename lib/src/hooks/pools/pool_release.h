// Around driver calls in which pools may lose memory, or what was freed in the order of a stream
// goes. The driver lets it go before the ledger hears
// of it, and whoever compares the two meanwhile would take the difference for overhead that is
// gone: so the whole call counts as a move, until all that is settled.
#pragma once

#include "hooks/fence.h"

namespace gpufence {

class PoolRelease {
 public:
  // A null fence, or a process without either, costs two loads.
  explicit PoolRelease(Fence* fence)
      : fence_(fence != nullptr && (fence->pools.made.load(std::memory_order_relaxed) != 0 ||
                                    fence->late_frees.count.load(std::memory_order_relaxed) != 0)
                   ? fence
                   : nullptr) {
    if (fence_ == nullptr) return;
    for (uint32_t i = 0; i < fence_->device_count; ++i) {
      ++this_thread.moves;
      fence_->devices[i].moves.Begin();
    }
  }
  ~PoolRelease() {
    if (fence_ == nullptr) return;
    for (uint32_t i = 0; i < fence_->device_count && this_thread.moves != 0; ++i) {
      --this_thread.moves;
      fence_->devices[i].moves.End();
    }
  }
  PoolRelease(const PoolRelease&) = delete;
  PoolRelease& operator=(const PoolRelease&) = delete;

 private:
  Fence* fence_;
};

}  // namespace gpufence
