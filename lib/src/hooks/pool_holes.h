// Where a pool surely has room: pieces that were freed, and rests of blocks that were taken. A
// request that fits into one does not make the pool grow, so it needs no further charge. Forgetting
// a hole is always safe; believing in one that is gone is not.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "core/spin.h"

namespace gpufence {

class PoolHoles {
 public:
  static constexpr int kUnsure = -1;
  static constexpr uint64_t kAnyStream = UINT64_MAX;

  // Takes a hole that serves `bytes` on a stream off the market until Landed; kUnsure when none is
  // known. Memory freed on one stream serves others only later.
  int Claim(uint64_t bytes, uint64_t stream);

  // The request ended: at an address (0: failed), and by taking so many bytes from the device.
  void Landed(int claim, uint64_t address, uint64_t bytes, uint64_t grown_bytes);

  // A piece was given back by a driver call before which BeforeFree was asked: whoever landed in the
  // piece since then, before we could say that it is free, must not be overlooked.
  uint64_t BeforeFree() const { return landings_.load(std::memory_order_acquire); }
  void Freed(uint64_t before, uint64_t address, uint64_t bytes, uint64_t stream);

  // The pool gave memory back to the device, nobody knows which.
  void Clear();

 private:
  struct Hole {
    uint64_t address;
    uint64_t bytes;  // 0: no hole
    uint64_t stream;
    bool claimed;
  };
  static constexpr int kMost = 32;
  static constexpr uint64_t kRecent = 16;

  bool IsTakenSince(uint64_t before, uint64_t address, uint64_t bytes) const;
  void Add(uint64_t address, uint64_t bytes, uint64_t stream);
  void Cut(uint64_t address, uint64_t bytes);

  SpinLock lock_;
  int end_;  // no hole at or behind it
  Hole holes_[kMost];
  std::atomic<uint64_t> landings_;
  struct {
    uint64_t address;
    uint64_t bytes;
  } recent_[kRecent];  // the latest landings, by number
};

}  // namespace gpufence
