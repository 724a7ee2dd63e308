// Where a pool surely has room: pieces that were freed, and the rest of the last block. A request
// that fits there does not make the pool grow, so it needs no further charge. Forgetting a hole is
// always safe; believing in one that is gone is not.
//
// Nothing is sure in a pool that once lost blocks from among its addresses (a trim, a
// synchronisation, a block that the driver moved elsewhere): the driver may put a request at such
// bare addresses although a hole would serve. Seen on an H200 in 13 of 9260 requests, and never in
// a pool that is backed from end to end. A pool that holds nothing at all begins anew.
//
// Guarded by its account's lock, except BeforeFree.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace gpufence {

class PoolHoles {
 public:
  static constexpr int kUnsure = -1;
  static constexpr int kTail = -2;  // behind everything that was allocated so far

  // Takes a hole that serves `bytes` on a stream off the market until Landed; kUnsure when none is
  // known. Memory freed on one stream serves others only later. `growing_bytes`: what other
  // requests may need of the tail.
  int Claim(uint64_t bytes, uint64_t stream, uint64_t growing_bytes);

  // The request ended at an address (0: failed). True when it took the hole that it had claimed, so
  // that the pool cannot have changed.
  bool Landed(int claim, uint64_t address, uint64_t bytes);

  // What the driver says it has reserved; `quiet` while no request is under way. Frees that are
  // under way while all of it is lost leave no holes.
  void Observe(uint64_t reserved_bytes, bool quiet);

  // Somebody else allocates from this pool: nothing is sure.
  void Distrust();

  // A piece was given back by a driver call before which BeforeFree was asked: whoever landed in
  // the piece since then, before we could say that it is free, must not be overlooked.
  uint64_t BeforeFree() const { return landings_.load(std::memory_order_acquire); }
  void Freed(uint64_t before, uint64_t address, uint64_t bytes, uint64_t stream);

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
  void Extend(uint64_t address, uint64_t bytes);
  uint64_t TailBytes() const;

  bool bare_;
  int end_;                  // no hole at or behind it
  uint64_t begin_;           // of the pool's first block; 0: unknown
  uint64_t top_;             // nothing was ever allocated at or behind it
  uint64_t reserved_bytes_;  // from begin_ on, unless bare_
  uint64_t claimed_bytes_;   // by requests under way
  Hole holes_[kMost];
  std::atomic<uint64_t> landings_;
  struct {
    uint64_t address;
    uint64_t bytes;
  } recent_[kRecent];  // the latest landings, by number
};

}  // namespace gpufence
