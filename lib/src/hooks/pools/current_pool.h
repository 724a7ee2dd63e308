// The pool that serves a device's stream-ordered requests where none is named: asked of the driver
// once, and again after somebody chose another one or the chosen one went.
#pragma once

#include <stdint.h>

#include "base/locks.h"
#include "driver_abi.h"

namespace gpufence {

struct Fence;

// Wiped on fork.
struct PoolChoices {
  SpinLock lock;
  uint32_t changing;  // driver calls under way that may change a device's pool
  uint64_t changes;   // that ever began or ended
};

// A device's pool; null when the driver does not say. Of one that is fenced it is mostly known, in
// its `current_pool`.
[[gnu::noinline]] CUmemoryPool AskCurrentPool(Fence* fence, uint32_t ordinal);

// Around driver calls that may change the pool of a device: what is known is forgotten before, and
// what is learned meanwhile is not kept.
class PoolChoice {
 public:
  explicit PoolChoice(Fence* fence);
  ~PoolChoice();
  PoolChoice(const PoolChoice&) = delete;
  PoolChoice& operator=(const PoolChoice&) = delete;

 private:
  Fence* fence_;
};

}  // namespace gpufence
