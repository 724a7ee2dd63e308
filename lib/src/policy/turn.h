// Turns on a device: when one is over and who comes next, and which containers take turns at all
// (docs/side-by-side.md). Pure; time is a parameter. Must not know the shared file, processes or
// CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tuning.h"

namespace gpufence {

inline constexpr uint64_t kUnknownEnd = UINT64_MAX;
inline constexpr uint32_t kNoTenant = UINT32_MAX;

// How processes have the GPU at once: one after the other, for a slice each; or together, as
// clients of a multi-process server (MPS), where each of n has 1/n of it.
enum class Together : uint8_t { kBySlices, kSideBySide };

// A turn, as one word says it. No turn begins in the microsecond of another, so a word that was
// read and is still there means the same turn. The lower half changes with it, for futexes.
struct Turn {
  uint32_t tenant;  // kNoTenant: the device is free
  bool closing;     // the holder launches no more; handed over when it is drained
  uint64_t began_us;
};
uint64_t PackTurn(Turn turn);
Turn UnpackTurn(uint64_t word);

// The turn that follows one: it begins now, but later than the last, unless that began in the
// future and so never did.
Turn NextTurn(Turn last, uint32_t tenant, uint64_t now_ns);

// When it began, in nanoseconds; 0 when it says that it will.
uint64_t TurnBegan(Turn turn, uint64_t now_ns);

// One container on one device, as far as turns go.
struct TenantView {
  uint64_t
      wants_ns;  // since when it has been waiting for, or using, the device; 0: it wants nothing
  uint64_t idle_since_ns;  // since when nothing of it is outstanding; 0: something is
  uint64_t ends_ns;        // when what is outstanding is expected to be done; or kUnknownEnd
  uint64_t due_ns;         // policy/share.h
  int64_t lead_ns;         // what it was served beyond the others (LeadOf), its turn included
  uint64_t quantum_ns;     // how long its turns are
  uint32_t share;          // thousandths of a percent
  uint32_t rank;           // whoever has the higher one goes first
  int64_t saved_ns;        // of its budget, and part of lead_ns
};

// The quantum of a program whose launches take so long, in the mean; 0: not known.
uint64_t QuantumFor(uint64_t launch_ns, const Tuning& tuning = kTuning);

// True when the tenant wants the turn and can pay.
bool IsEligible(const TenantView& tenant, uint64_t now_ns);

// True when the holder must let go for `next` (null: nobody who wants the turn can pay): its budget
// is used up, it has been idle, its quantum has passed and the other one was served less, or after
// a short turn the other one is behind by more than a quantum makes, because it rarely wants one.
bool IsTurnOver(const TenantView& holder, const TenantView* next, uint64_t began_ns,
                uint64_t now_ns, const Tuning& tuning = kTuning);

// True when somebody who waits may take the turn without the holder's help: it is over, and nothing
// of it is left.
bool IsAbandoned(const TenantView& holder, const TenantView& next, uint64_t began_ns,
                 uint64_t now_ns, const Tuning& tuning = kTuning);

// Whether what a process, or a container, said to be outstanding still is: the heartbeat behind it
// is recent, or, where its threads are kept from running, the end that it foretold has not come.
bool IsStillOutstanding(uint64_t beat_ns, uint64_t ends_ns, uint64_t now_ns,
                        const Tuning& tuning = kTuning);

// How long a container was kept from its share of turns, after so much more time. It counts while
// the container waits and could pay, is given back twice over while it has the turn (`shares`: of
// all who want the device), and is over once it got what it wanted: it owes something, or wants
// nothing.
enum class TurnWait : uint8_t { kContent, kWaits, kHasTurn };
uint64_t WaitedAfter(uint64_t waited_ns, uint64_t passed_ns, TurnWait wait, uint32_t share,
                     uint64_t shares, const Tuning& tuning = kTuning);

// True when nothing of a holder that is closing is left, as seen or as expected: to be sure takes
// another look, and to wake the next one takes time in any case.
bool IsDrained(const TenantView& holder, uint64_t now_ns);

// The tenant that wants a turn, may launch now, and was served least; kNoTenant when none.
// O(count).
uint32_t NextTenant(const TenantView* tenants, size_t count, uint64_t now_ns);

// Since when the tenant wants the turn and can pay; UINT64_MAX when it does not.
uint64_t WaitsSince(const TenantView& tenant, uint64_t now_ns);

// What a turn costs that somebody else waited for: that time and two changes of hands, over the
// share.
uint64_t ServedInTurn(uint64_t began_ns, uint64_t others_wait_ns, uint64_t now_ns, uint32_t share);

// The share of turns that a container needs for its share of GPU time: between short kernels are
// pauses, for which nobody is charged. It used so much of a turn of `turn_ns`; to leave more than a
// third gains nothing. It gets no more than its part if all `takers` had turns of one length, which
// is what the driver's slices would give it; but never less than its share.
uint32_t ShareWithPauses(uint32_t share, uint64_t used_ns, uint64_t turn_ns, uint32_t takers);

// How far `served_ns` is ahead of the device's virtual time. Both may wrap; leads are bounded, so
// that neither a wrong word nor a very long kernel keeps anybody away for longer than kMostLeadNs.
int64_t LeadOf(uint64_t served_ns, uint64_t virtual_ns);
inline constexpr int64_t kMostLeadNs = 10'000'000'000;

// `served_ns` of a tenant that was idle and is back: it keeps at most a long quantum of what it
// missed, so that it is next but does not hoard; a lead of kMostLeadNs is forgiven.
uint64_t CatchUp(uint64_t served_ns, uint64_t virtual_ns, uint32_t share,
                 const Tuning& tuning = kTuning);

// ---- who takes turns ----

// Containers whose queues are deep. Two of them would cost the GPU a fourteenth of its time in
// changes of hands if the driver alternated between them; everybody else lets it, and waits for
// nobody.

// Of a container's runs, in millionths: what kernels ran, and how much of neighbours' time in them
// was charged. Pauses between kernels are taken off by their number, whatever lies there; idle time
// is taken off as a part of the run, and so of neighbours' time as well.
struct Density {
  uint64_t kernels;
  uint64_t charged;
};
inline constexpr uint64_t kWholeDensity = 1'000'000;

// In one word. Of a word that a library of 1.0.0 wrote, what kernels ran stands for both.
uint64_t PackDensity(Density density);
Density UnpackDensity(uint64_t word);

struct Depth {
  bool was_deep;
  uint64_t density;    // of its runs so much is kernels, in millionths
  uint64_t run_ns;     // MeanRunNs
  bool is_active;      // it wants or uses the GPU
  uint64_t rested_ns;  // when it last had no work of its own, and was held by nobody; 0: never
};

bool IsDeep(const Depth& depth, uint64_t now_ns, const Tuning& tuning = kTuning);

// How long a program must have no work for a rest, behind so much GPU time: longer than a training
// that reads its loss behind each step, which shall have turns.
uint64_t LeastRestNs(uint64_t worked_ns, const Tuning& tuning = kTuning);

// The mean length of runs after `busy_ns` more in one that takes `run_ns` so far.
uint64_t MeanRunNs(uint64_t mean_ns, uint64_t run_ns, uint64_t busy_ns,
                   const Tuning& tuning = kTuning);

// ... and after the program waited for a short piece of its work. Behind a few of them it takes no
// turns, however deep its queue was before: it would leave most of its turn unused.
uint64_t MeanRunBehindPieceNs(uint64_t mean_ns, const Tuning& tuning = kTuning);

// The mean density after `ran_ns` more of which `busy_ns` were kernels.
uint64_t MeanDensity(uint64_t mean, uint64_t busy_ns, uint64_t ran_ns,
                     const Tuning& tuning = kTuning);

}  // namespace gpufence
