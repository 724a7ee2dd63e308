// What a thread of ours is in the middle of, in one place: each thread-local costs a look into the
// table of offsets, which is cold behind a driver call.
#pragma once

#include <stdint.h>

namespace gpufence {

struct FencedDevice;
struct PoolAccount;

struct alignas(64) ThisThread {
  uint32_t hooks;          // of ours that it is inside of
  uint32_t moves;          // of its own that are under way (hooks/ledger_move.h)
  uint32_t asking;         // of them: their bytes are not counted yet
  uint32_t moves_cell;     // which of every device's this thread writes; 0: none yet
  PoolAccount* last_pool;  // that it used (hooks/pools/pool_table.cpp)
  uintptr_t frame;         // where the outermost of the hooks is on the stack

  // The first reservation that is neither kept nor given back; null: none.
  const void* reservation;
  FencedDevice* device;
  uint64_t bytes;
  uint32_t tier;

  uint32_t making_room;  // not 0: pools are being trimmed for a request
};
extern constinit thread_local ThisThread this_thread;

}  // namespace gpufence
