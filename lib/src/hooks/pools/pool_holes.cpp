#include "hooks/pools/pool_holes.h"

#include "policy/charge.h"

namespace gpufence {

uint64_t PoolHoles::TailBytes() const {
  const uint64_t end = begin_ + reserved_bytes_;
  return begin_ != 0 && end > top_ ? end - top_ : 0;
}

int PoolHoles::Claim(uint64_t bytes, uint64_t stream, uint64_t growing_bytes) {
  if (bare_) return kUnsure;
  int best = kUnsure;
  for (int i = 0; i < end_; ++i) {
    const Hole& hole = holes_[i];
    if (hole.bytes < bytes || hole.bytes == 0 || hole.claimed || hole.stream != stream) continue;
    if (best == kUnsure || hole.bytes < holes_[best].bytes) best = i;
    if (hole.bytes == bytes) break;
  }
  if (best != kUnsure) [[likely]] {
    holes_[best].claimed = true;
    claimed_bytes_ += bytes;
    return best;
  }
  // Whoever relies on a hole that somebody else gets takes of the tail instead. Written so that an
  // absurd size cannot wrap.
  const uint64_t tail = TailBytes();
  const uint64_t taken = claimed_bytes_ + growing_bytes;
  if (taken > tail || bytes > tail - taken) return kUnsure;
  claimed_bytes_ += bytes;
  return kTail;
}

bool PoolHoles::Landed(int claim, uint64_t address, uint64_t bytes) {
  bool hit = false;
  if (claim != kUnsure) claimed_bytes_ -= bytes;
  if (claim == kTail) {
    hit = address != 0 && address + bytes <= begin_ + reserved_bytes_;
  } else if (claim != kUnsure) {
    Hole& hole = holes_[claim];
    hole.claimed = false;
    hit = address >= hole.address && address + bytes <= hole.address + hole.bytes;
    // Whoever took it has not said so yet: until then nobody else may rely on it.
    if (!hit) hole.bytes = 0;
  }
  if (address == 0) return false;
  const uint64_t number = landings_.load(std::memory_order_relaxed);
  recent_[number % kRecent] = {address, bytes};
  landings_.store(number + 1, std::memory_order_release);
  Cut(address, bytes);
  Extend(address, bytes);
  return hit;
}

void PoolHoles::Extend(uint64_t address, uint64_t bytes) {
  const uint64_t start = address / kPoolBlockBytes * kPoolBlockBytes;
  if (begin_ == 0 || start < begin_) begin_ = start;
  if (address + bytes > top_) top_ = address + bytes;
}

void PoolHoles::Observe(uint64_t reserved_bytes, bool quiet) {
  if (reserved_bytes < reserved_bytes_) Distrust();
  reserved_bytes_ = reserved_bytes;
  if (reserved_bytes == 0) {
    if (!quiet) return;
    bare_ = false;
    begin_ = top_ = 0;
    // Pieces whose free is under way were in the memory that is gone: all count as taken since.
    const uint64_t number = landings_.load(std::memory_order_relaxed);
    landings_.store(number + kRecent + 1, std::memory_order_release);
  } else if (begin_ != 0 && RoundUp(top_, kPoolBlockBytes) - begin_ > reserved_bytes) {
    Distrust();  // more addresses than memory: a block was moved
  }
}

void PoolHoles::Distrust() {
  bare_ = true;
  for (int i = 0; i < end_; ++i) holes_[i].bytes = 0;
}

void PoolHoles::Freed(uint64_t before, uint64_t address, uint64_t bytes, uint64_t stream) {
  if (!bare_ && !IsTakenSince(before, address, bytes)) [[likely]]
    Add(address, bytes, stream);
}

bool PoolHoles::IsTakenSince(uint64_t before, uint64_t address, uint64_t bytes) const {
  const uint64_t now = landings_.load(std::memory_order_relaxed);
  if (now - before > kRecent) return true;  // too long ago to know
  for (uint64_t number = before; number != now; ++number) {
    const auto& landed = recent_[number % kRecent];
    if (landed.address < address + bytes && address < landed.address + landed.bytes) return true;
  }
  return false;
}

// In a free place, else in that of the smallest hole that is smaller.
void PoolHoles::Add(uint64_t address, uint64_t bytes, uint64_t stream) {
  int place = -1;
  for (int i = 0; i < end_; ++i) {
    const Hole& hole = holes_[i];
    if (hole.claimed) continue;
    if (hole.bytes == 0) [[likely]] {
      place = i;
      break;
    }
    if (end_ == kMost && hole.bytes < bytes && (place == -1 || hole.bytes < holes_[place].bytes)) {
      place = i;
    }
  }
  if (place == -1) [[unlikely]] {
    if (end_ == kMost) return;
    place = end_++;
  }
  holes_[place] = {address, bytes, stream, false};
}

// Removes what an allocation occupies, wherever the driver put it: of each hole the larger side
// stays.
void PoolHoles::Cut(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  for (int i = 0; i < end_; ++i) {
    Hole& hole = holes_[i];
    const uint64_t hole_end = hole.address + hole.bytes;
    if (hole.bytes == 0 || hole_end <= address || hole.address >= end) continue;
    const uint64_t left = address > hole.address ? address - hole.address : 0;
    const uint64_t right = hole_end > end ? hole_end - end : 0;
    if (right > left) hole.address = end;
    hole.bytes = right > left ? right : left;
  }
}

}  // namespace gpufence
