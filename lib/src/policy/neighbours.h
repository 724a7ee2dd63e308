// Whether somebody else uses a GPU, from how busy it is and how busy we keep it: for containers
// that share no folder with their neighbours. Pure. Must not know who is asked.
#pragma once

#include <stdint.h>

namespace gpufence {

// A look every so often; the driver samples about six times a second.
inline constexpr uint64_t kNeighbourLookNs = 200'000'000;
// One that was seen counts for so long: a look, and what may come in between.
inline constexpr uint64_t kNeighbourLastsNs = 300'000'000;

// Where neighbours are only seen by what they make the GPU busy beyond us, something must be left
// for them to be seen by.
inline constexpr uint32_t kMostUnseenShare = 85'000;  // thousandths of a percent

// What was seen at the last looks. Zeroed memory is ready for use.
class NeighbourSight {
 public:
  bool IsDue(uint64_t now_ns) const { return now_ns - looked_ns_ >= kNeighbourLookNs; }

  // One look: the device was busy `percent` of the time lately, and we have used `charged_ns` of it
  // ever. True when somebody else seems to use it, or when that cannot be said yet.
  bool Look(uint64_t now_ns, uint64_t charged_ns, uint32_t percent);

 private:
  // Samples and looks cover different moments, which matters less over several.
  static constexpr uint32_t kLooks = 3;
  static constexpr uint64_t kMarginPermille = 80;

  struct Seen {
    uint64_t ns;
    uint64_t own_ns;
    uint64_t busy_ns;
  };

  uint64_t looked_ns_;
  uint64_t charged_ns_;
  Seen seen_[kLooks];
  uint32_t count_;
};

}  // namespace gpufence
