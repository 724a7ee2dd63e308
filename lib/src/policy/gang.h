// Processes of one container whose GPUs meet in collectives: a kernel of one runs, and is charged,
// until all others have launched theirs. So a process that is held for budget is held at the same
// collective as the others, and all go on together (docs/core-limiter.md, "GPUs that wait for each
// other"). Pure; time is a parameter. Must not know the shared file or CUDA.
//
// No word of another process is believed for long, and nobody waits for one without a bound.
#pragma once

#include <stdint.h>

#include "base/tuning.h"

namespace gpufence {

// Nobody is further ahead: no more launches can be queued on a GPU.
inline constexpr uint32_t kMostLead = 1024;

// Whether a kernel of this name, mangled or not, meets others on other GPUs.
bool IsCollectiveName(const char* name);

// What a process says of itself, on each GPU: how many collectives it launched and when the last
// one; and whether it holds. 0: a library that does not know of it, or nothing.
struct GangWords {
  uint64_t launched;
  uint64_t held;
};
uint64_t PackLaunched(uint32_t count, uint64_t now_ns);
// `is_behind`: its last collective, directly. `is_quiet`: all that it launched is done.
uint64_t PackHeld(bool is_behind, bool is_quiet, uint64_t now_ns);

// The others, as seen by one that has launched `count`.
struct GangView {
  uint32_t count;
  uint32_t members;     // that took part lately
  uint32_t holding;     // of them
  uint32_t lead;        // of the one furthest ahead that may be waiting for us
  uint32_t quiet_lead;  // ... that is done: it waited for nobody, so the counts differ
  uint64_t due_ns;      // the latest of those that hold
  bool is_unfinished;   // one that holds behind a collective has work left
};
void AddToGang(GangView* view, GangWords words, uint64_t due_ns, uint64_t now_ns);

// One that may have to wait.
struct GangAsker {
  uint64_t wait_ns;   // for its own budget; 0: it can pay
  int64_t owed_ns;    // since others began to seem to wait for it, if they do
  int64_t queued_ns;  // what will be owed for all that it has queued, about
  bool is_behind;     // a collective, directly
  bool is_quiet;
  bool is_fed;       // so much is queued that nobody waits for its next launch
  bool was_awaited;  // behind the last collective, by somebody who had unfinished work ever since
};

// What it remembers while it waits.
struct GangWait {
  bool waits;
  uint64_t paid_ns;     // since when it can pay; 0: it cannot
  uint64_t stalled_ns;  // since when others seem to wait for it; 0: they do not
};

struct GangAnswer {
  uint64_t wait_ns;   // before it asks again; 0: it goes on
  bool is_uncounted;  // its next collective is one that the others have counted already
};
GangAnswer AskGang(const GangView& view, const GangAsker& asker, GangWait* wait, uint64_t now_ns);

}  // namespace gpufence
