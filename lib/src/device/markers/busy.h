// When kernels ran, as looks and waits tell it. Must not know who pays for it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

namespace gpufence {

struct BusyInterval {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint32_t ordinal;
};

// Where such intervals go.
class BusyList {
 public:
  BusyList(const BusyList&) = delete;
  BusyList& operator=(const BusyList&) = delete;

  BusyInterval* begin() { return at_; }
  BusyInterval* end() { return at_ + count_; }
  bool empty() const { return count_ == 0; }

  // Out of room the last interval grows over what lies between, which charges too much.
  void Add(uint32_t ordinal, uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns <= begin_ns) return;
    if (count_ == room_) {
      at_[count_ - 1].end_ns = std::max(at_[count_ - 1].end_ns, end_ns);
      return;
    }
    at_[count_++] = {begin_ns, end_ns, ordinal};
  }

 protected:
  BusyList(BusyInterval* at, size_t room) : at_(at), room_(room) {}

 private:
  BusyInterval* at_;
  size_t room_;
  size_t count_ = 0;
};

template <size_t kRoom>
class BusyIntervals : public BusyList {
 public:
  BusyIntervals() : BusyList(intervals_, kRoom) {}

 private:
  BusyInterval intervals_[kRoom];
};

}  // namespace gpufence
