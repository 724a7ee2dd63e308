#include "state/limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpufence {
namespace {

// A writer takes microseconds and each read sees the generation anew.
constexpr int kAttempts = 100;
constexpr uint32_t kMostPriority = 2;
constexpr uint64_t kWholeInSteps = 100'000'000'000;  // 100 % in billionths of a percent

uint64_t HashOf(const void* start, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(start);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3u;
  return hash;
}

uint64_t CheckOf(const LimitsBank& bank) {
  return HashOf(&bank.generation, offsetof(LimitsBank, entries) - offsetof(LimitsBank, generation) +
                                      bank.count * sizeof(LimitsEntry));
}

bool ReadAt(int fd, size_t offset, void* to, size_t bytes) {
  return pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool ReadBank(int fd, uint64_t container, LimitsBank* bank) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    LimitsHeader header;
    if (!ReadAt(fd, 0, &header, sizeof header) || header.magic != kLimitsMagic ||
        header.layout_version != kLimitsVersion || header.max_entries != kMaxLimitsEntries ||
        header.container != container) {
      return false;
    }
    const size_t offset =
        offsetof(LimitsBytes, banks) + (header.generation & 1) * sizeof(LimitsBank);
    if (!ReadAt(fd, offset, bank, sizeof *bank)) return false;
    if (bank->generation == header.generation && bank->count <= kMaxLimitsEntries &&
        bank->check == CheckOf(*bank)) {
      return true;
    }
    sched_yield();
  }
  return false;
}

// Whoever may write to it is who may set limits.
bool Counts(int fd, uid_t owner) {
  struct stat found = {};
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
         (found.st_uid == owner || found.st_uid == 0) && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool IsZero(const uint8_t uuid[16]) {
  constexpr uint8_t kZeros[16] = {};
  return memcmp(uuid, kZeros, sizeof kZeros) == 0;
}

uint64_t MemoryOf(const LimitsEntry& entry, uint64_t total_bytes) {
  if (entry.memory == 0) return kNoLimit;
  uint64_t bytes = entry.memory;
  if ((entry.flags & kMemoryIsPart) != 0) {
    using Wide = unsigned __int128;
    const Wide part = Wide{total_bytes} * entry.memory / kWholeInSteps;
    bytes = part < total_bytes ? static_cast<uint64_t>(part) : total_bytes;
    if (bytes == 0) bytes = 1;  // less than a byte of the device is no room, not no limit
  }
  return bytes;
}

void Apply(const LimitsEntry& entry, uint64_t total_bytes, SetLimits* set) {
  if ((entry.flags & kMemoryIsSet) != 0) set->memory_bytes = MemoryOf(entry, total_bytes);
  if ((entry.flags & kCoresAreSet) != 0) set->cores = entry.cores;
  if ((entry.flags & kSoftCoresAreSet) != 0) set->soft_cores = entry.soft_cores;
  if ((entry.flags & kOversubscribeIsSet) != 0) set->oversubscribe = entry.oversubscribe;
}

}  // namespace

void LimitsFile::Look(const char* folder, const char* container, uid_t owner) {
  snprintf(path_, sizeof path_, "%s/gpufence-%s.limits%u", folder, container, kLimitsVersion);
  container_ = HashOf(container, strlen(container));
  owner_ = owner;
}

void LimitsFile::TakeOver(const LimitsFile& other) {
  memcpy(path_, other.path_, sizeof path_);
  container_ = other.container_;
  owner_ = other.owner_;
  bank_ = other.bank_;
  exists_.store(other.exists(), std::memory_order_release);
}

LimitsFound LimitsFile::ReadInto(LimitsBank* bank) const {
  const int fd = open(path_, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return LimitsFound::kNone;
  LimitsFound found = LimitsFound::kForeign;
  if (Counts(fd, owner_)) {
    found = ReadBank(fd, container_, bank) ? LimitsFound::kRead : LimitsFound::kDamaged;
  }
  close(fd);
  return found;
}

LimitsFound LimitsFile::Read() {
  LimitsBank bank;
  const LimitsFound found = ReadInto(&bank);
  if (found != LimitsFound::kRead) return found;
  SpinGuard guard(&lock_);
  // Of two threads that read at once the one with the older bank may come last.
  if (!exists() || bank.generation > bank_.generation) bank_ = bank;
  exists_.store(true, std::memory_order_release);
  return found;
}

LimitsFound LimitsFile::ReadNewer(const Region* region) {
  const uint32_t word = region->header.set_generation.load(std::memory_order_acquire);
  if (word == seen_.load(std::memory_order_relaxed)) return LimitsFound::kNone;
  const LimitsFound found = Read();
  seen_.store(word, std::memory_order_relaxed);
  return found;
}

void LimitsFile::Announce(Region* region) {
  std::atomic<uint32_t>& word = region->header.set_generation;
  const auto own = static_cast<uint32_t>(bank_.generation);
  uint32_t seen = word.load(std::memory_order_acquire);
  // A word that is ahead is a writer's who came after the reading.
  if (exists() && static_cast<int32_t>(own - seen) > 0 &&
      word.compare_exchange_strong(seen, own, std::memory_order_release)) {
    region->header.limit_epoch.fetch_add(1, std::memory_order_release);
  }
  seen_.store(exists() ? own : 0, std::memory_order_relaxed);
}

SetLimits LimitsFile::For(const uint8_t uuid[16], uint64_t total_bytes) {
  SetLimits set;
  SpinGuard guard(&lock_);
  if (!exists()) return set;
  for (uint32_t i = 0; i < bank_.count; ++i) {
    if (IsZero(bank_.entries[i].uuid)) Apply(bank_.entries[i], total_bytes, &set);
  }
  for (uint32_t i = 0; i < bank_.count; ++i) {
    if (memcmp(bank_.entries[i].uuid, uuid, 16) == 0) Apply(bank_.entries[i], total_bytes, &set);
  }
  return set;
}

SetTerms LimitsFile::Terms() {
  SetTerms set = {};
  SpinGuard guard(&lock_);
  if (!exists()) return set;
  const LimitsTerms& terms = bank_.terms;
  const auto is_set = [&terms](uint32_t flag) { return (terms.flags & flag) != 0; };
  if (is_set(kPriorityIsSet) && terms.priority <= kMostPriority) set.priority = terms.priority;
  if (is_set(kWeightIsSet)) set.weight = terms.weight;
  if (is_set(kBurstIsSet)) set.burst_ns = terms.burst_ns;
  if (is_set(kFloorIsSet)) set.floor = terms.floor;
  set.frozen = is_set(kIsFrozen);
  return set;
}

}  // namespace gpufence
