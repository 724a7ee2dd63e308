// What a thread of ours is in the middle of, in one place: each thread-local costs a look into the
// table of offsets, which is cold behind a driver call.
#pragma once

#include <stdint.h>

namespace gpufence {

struct PoolAccount;

struct alignas(32) ThisThread {
  uint32_t hooks;          // of ours that it is inside of
  uint32_t moves;          // of its own that are under way (hooks/ledger_move.h)
  uint32_t asking;         // of them: their bytes are not counted yet
  uint32_t moves_cell;     // which of every device's this thread writes; 0: none yet
  PoolAccount* last_pool;  // that it used (hooks/pools/pool_table.cpp)
};
extern constinit thread_local ThisThread this_thread;

}  // namespace gpufence
