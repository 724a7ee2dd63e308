// Whose turn it is on a device: when a turn is over and who comes next. Pure; time is a parameter.
// Must not know the shared file, processes or CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr uint64_t kTurnQuantumNs = 20'000'000;
inline constexpr uint64_t kTurnIdleNs = 500'000;
inline constexpr uint64_t kMemberSilentNs = 20'000'000;  // no heartbeat: stopped
inline constexpr uint32_t kNoTenant = UINT32_MAX;

// One container on one device, as far as turns go.
struct TenantView {
  uint64_t wants_ns;      // since when it wants the GPU; 0: it does not
  uint64_t held_ns;       // time it held turns, caught up when it came back from idleness
  uint64_t idle_since_ns; // holder: since when nothing of it is outstanding; 0: something is
  uint64_t due_ns;        // policy/share.h
  uint32_t share;         // thousandths of a percent
  bool drained;           // nothing outstanding in any living, beating process of it
};

// True when the holder must let go: somebody else wants the turn, and its quantum has passed, its
// budget is used up, or it has been idle.
bool IsTurnOver(const TenantView& holder, uint64_t began_ns, uint64_t now_ns, bool others_want);

// The tenant that wants a turn, may launch now, and held least per share; kNoTenant when none.
// O(count).
uint32_t NextTenant(const TenantView* tenants, size_t count, uint64_t now_ns);

}  // namespace gpufence
