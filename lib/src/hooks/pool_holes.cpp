#include "hooks/pool_holes.h"

namespace gpufence {

int PoolHoles::Claim(uint64_t bytes, uint64_t stream) {
  SpinGuard guard(&lock_);
  int best = kUnsure;
  for (int i = 0; i < end_; ++i) {
    const Hole& hole = holes_[i];
    if (hole.bytes < bytes || hole.bytes == 0 || hole.claimed) continue;
    if (hole.stream != stream && hole.stream != kAnyStream) continue;
    if (best == kUnsure || hole.bytes < holes_[best].bytes) best = i;
    if (hole.bytes == bytes) break;
  }
  if (best != kUnsure) holes_[best].claimed = true;
  return best;
}

void PoolHoles::Landed(int claim, uint64_t address, uint64_t bytes, uint64_t grown_bytes) {
  SpinGuard guard(&lock_);
  if (claim != kUnsure) holes_[claim].claimed = false;
  if (address == 0) return;
  const uint64_t number = landings_.load(std::memory_order_relaxed);
  recent_[number % kRecent] = {address, bytes};
  landings_.store(number + 1, std::memory_order_release);
  Cut(address, bytes);
  if (grown_bytes > bytes) Add(address + bytes, grown_bytes - bytes, kAnyStream);
}

void PoolHoles::Freed(uint64_t before, uint64_t address, uint64_t bytes, uint64_t stream) {
  SpinGuard guard(&lock_);
  if (!IsTakenSince(before, address, bytes)) Add(address, bytes, stream);
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

void PoolHoles::Clear() {
  SpinGuard guard(&lock_);
  for (int i = 0; i < end_; ++i) holes_[i].bytes = 0;
}

// In a free place, else in that of the smallest hole that is smaller.
void PoolHoles::Add(uint64_t address, uint64_t bytes, uint64_t stream) {
  int place = -1;
  for (int i = 0; i < end_; ++i) {
    const Hole& hole = holes_[i];
    if (hole.claimed) continue;
    if (hole.bytes == 0) {
      place = i;
      break;
    }
    if (end_ == kMost && hole.bytes < bytes &&
        (place == -1 || hole.bytes < holes_[place].bytes)) {
      place = i;
    }
  }
  if (place == -1) {
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
