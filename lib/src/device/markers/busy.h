// When kernels ran, as looks and waits tell it. Must not know who pays for it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

namespace gpufence {

// The stream had work on the GPU since `since_ns`; of that, what lies before `begin_ns` stands for
// all pauses between kernels.
struct BusyInterval {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint32_t ordinal;
  uint64_t since_ns;
  bool is_own;  // none of it can be other containers'
};

// Where such intervals go.
class BusyList {
 public:
  BusyList(const BusyList&) = delete;
  BusyList& operator=(const BusyList&) = delete;

  BusyInterval* begin() { return at_; }
  BusyInterval* end() { return at_ + count_; }
  bool empty() const { return count_ == 0; }

  // Out of room the device's last interval grows over what lies between, which charges too much.
  void Add(uint32_t ordinal, uint64_t begin_ns, uint64_t end_ns) {
    Add({begin_ns, end_ns, ordinal, begin_ns, false});
  }
  void Add(const BusyInterval& more) {
    if (more.end_ns <= more.begin_ns) return;
    if (count_ < room_) {
      at_[count_++] = more;
    } else if (BusyInterval* last = LastOf(more.ordinal, count_); last != nullptr) {
      Cover(last, more);
    } else {
      *TakePlace() = more;
    }
  }

 protected:
  BusyList(BusyInterval* at, size_t room) : at_(at), room_(room) {}

 private:
  // Of those before `end`; null: none.
  BusyInterval* LastOf(uint32_t ordinal, size_t end) {
    for (size_t i = end; i > 0; --i) {
      if (at_[i - 1].ordinal == ordinal) return &at_[i - 1];
    }
    return nullptr;
  }

  static void Cover(BusyInterval* grown, const BusyInterval& other) {
    grown->begin_ns = std::min(grown->begin_ns, other.begin_ns);
    grown->end_ns = std::max(grown->end_ns, other.end_ns);
    grown->since_ns = std::min(grown->since_ns, other.since_ns);
    grown->is_own &= other.is_own;
  }

  // The place of one that another one of its device covers. There is one: a list of several devices
  // has more places than there are devices.
  BusyInterval* TakePlace() {
    for (size_t i = count_ - 1; i > 0; --i) {
      BusyInterval* before = LastOf(at_[i].ordinal, i);
      if (before == nullptr) continue;
      Cover(before, at_[i]);
      return &at_[i];
    }
    return &at_[count_ - 1];
  }

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
