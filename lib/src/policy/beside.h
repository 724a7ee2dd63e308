// Several containers with work on one GPU at once: whose the time was (docs/side-by-side.md). Pure;
// time is a parameter. Must not know whose words these are.
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
