// What a container used of one GPU, in the words of its file (state/core_layout.h): every moment
// charged once, at what rate of late, and whose a moment was that several containers had work in
// (docs/side-by-side.md). Pure arithmetic on shared words; time is a parameter. Must not know whose
// words these are.
//
// A container's *run* is a stretch in which it always had work on the GPU, from the moment at which
// the GPU began it. The driver gives the GPU to one process at a time, for a slice, so a run that
// is no longer than a slice had the GPU to itself. Longer ones share what is left, unless it is
// known what they used of it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/pauses.h"
#include "policy/turn.h"
#include "shared_layouts.h"

namespace gpufence {

// Adds [begin_ns, end_ns) to what the tenant was busy; returns how much of it was new: every moment
// of a container is charged once, whichever process reports it first and in whatever order. What
// lies in the future counts up to `now_ns`. Lock-free; a process killed inside loses what it was
// adding, and at most one gap.
//
// Everything before charged_until_ns is charged, except the gaps: the latest kCoreGaps intervals
// that it jumped over, each at most kLongestGapNs, in steps of kGapStepNs (gaps lose up to two
// steps).
uint64_t AddBusy(CoreTenant* tenant, uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns);

inline constexpr uint64_t kGapStepNs = 4;
inline constexpr uint64_t kLongestGapNs = (uint64_t{1} << 24) * kGapStepNs - kGapStepNs;

// Looks at what was charged in all. `at_least`: what it counts as from now on, if that is more;
// what comes later decides.
void NoteRate(CoreTenant* tenant, uint32_t at_least, uint64_t now_ns);

// Thousandths of a percent of the last tenth of a second or so.
inline uint32_t RateOf(const CoreTenant& tenant) {
  return static_cast<uint32_t>(tenant.rate.load(std::memory_order_relaxed));
}

struct Run {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint32_t part;  // of it, in kParts, its container surely used the GPU, and no more; 0: not known
};
inline constexpr uint32_t kParts = 1023;

// One run in a word, its last 67 ms where it is longer; 0: too short to matter.
uint64_t PackRun(Run run);
// False when the word holds none, or one that is too old.
bool UnpackRun(uint64_t word, uint64_t now_ns, Run* run);

// Notes that a container had work on the GPU; joined to a run that it continues if of both it is
// known what part of it was used, or of neither; else in the place
// of the oldest. Lock-free; of two at once one may be lost.
void NoteRun(Word* runs, size_t count, Run run, uint64_t now_ns);

// The same of the stretch in which a container's queue was never empty.
struct Stretch {
  uint64_t ns;      // how long that is ...
  uint64_t new_ns;  // ... of which so much was not told before
};
Stretch NoteStretch(Word* stretch, Run run, uint64_t now_ns);

// A stretch of time, in which runs of one container meet those of its neighbours.
class Meeting {
 public:
  Meeting(uint64_t from_ns, uint64_t to_ns, Together together = Together::kBySlices)
      : from_ns_(from_ns), to_ns_(to_ns), together_(together) {}

  void AddOwn(Run run) { Add(run, kOurs); }
  // Of one neighbour after the other.
  void AddNeighbour() { ++neighbours_; }
  void AddTheirs(Run run) { Add(run, neighbours_); }

  // For how long the container had work, and how much of that was others'. Runs beyond
  // kMostRuns are left out, so that too little may be others' but never too much.
  uint64_t OwnNs() const;
  uint64_t OthersNs() const;

 private:
  static constexpr size_t kMostRuns = 192;
  static constexpr uint32_t kOurs = 0;

  struct Piece {
    uint64_t began_ns;  // the run, perhaps before the stretch
    uint64_t begin_ns;
    uint64_t end_ns;
    uint32_t whose;
    uint32_t part;
    bool is_whole;  // it had the GPU to itself
  };

  void Add(Run run, uint32_t whose);
  void AddWhole(Run run, uint32_t whose);
  void AddPiece(Run run, uint32_t whose, bool is_whole);
  template <typename Visit>
  uint64_t VisitTheirs(const Piece& own, uint64_t at_ns, Visit visit) const;
  uint64_t OthersNs(const Piece& own) const;
  uint64_t BesideNs(const Piece& own) const;

  uint64_t from_ns_;
  uint64_t to_ns_;
  Together together_;
  uint32_t neighbours_ = 0;
  size_t count_ = 0;
  Piece pieces_[kMostRuns];
};

}  // namespace gpufence
