// What this process holds: driver pointer or handle -> the charge behind it.
// A hash table that costs the same with ten and with a million entries; process-local, wiped on
// fork. Must not know CUDA: keys are numbers, kinds are the caller's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/spin.h"

namespace gpufence {

// Pointers and handles of different kinds may have the same number.
enum class HoldingKind : uint8_t {
  kNone = 0,
  kLinear,         // key: device address
  kManaged,        // key: device address
  kStreamOrdered,  // key: device address; owner: pool
  kPhysical,       // key: allocation handle of cuMemCreate
  kMapping,        // key: mapped address; owner: allocation handle
  kArray,          // key: array handle
  kMipmap,         // key: mipmapped array handle
  kPool,           // key: pool handle
  kGraphExec,      // key: executable graph; bytes: what its allocation nodes need
  kContext,        // key: context handle
  kImport,         // key: address or handle of memory that another process pays for
};

struct Holding {
  uint64_t key;
  uint64_t bytes;    // charged; for small linear memory: its 512-byte-rounded size
  uint64_t context;  // that ends it, or 0
  uint64_t owner;    // see HoldingKind
  uint32_t count;    // references, where a kind has them
  uint16_t device;   // index in this process's device table
  HoldingKind kind;
  bool small;        // its place is in a shared chunk (docs/memory-limiter.md section 1)
};

class Holdings {
 public:
  // Adds or replaces; false when no memory could be had for the table.
  bool Put(const Holding& holding);

  // Removes and returns it; false when there is none.
  bool Take(HoldingKind kind, uint64_t key, Holding* out);

  // Reads it; false when there is none.
  bool Get(HoldingKind kind, uint64_t key, Holding* out);

  // Adds `delta` to the references of a holding and returns the new count; -1 when there is none.
  // At zero the holding is removed and copied to *out.
  int64_t AddReference(HoldingKind kind, uint64_t key, int delta, Holding* out);

  // Removes, one after the other, all for which matches(holding) is true, handing each to
  // use(holding) outside of any lock. O(table).
  template <typename Matches, typename Use>
  void TakeWhere(Matches matches, Use use);

 private:
  static constexpr size_t kShards = 64;
  static constexpr size_t kFirstRoom = 64;

  struct Shard {
    SpinLock lock;
    Holding* places;
    size_t room;  // a power of two, or 0
    size_t used;
  };

  static Holding* Find(Shard* shard, HoldingKind kind, uint64_t key);
  static bool Grow(Shard* shard);
  static void Insert(Shard* shard, const Holding& holding);
  static void Erase(Shard* shard, Holding* place);
  Shard* ShardOf(HoldingKind kind, uint64_t key);

  Shard shards_[kShards];
};

// Implementation.

template <typename Matches, typename Use>
void Holdings::TakeWhere(Matches matches, Use use) {
  for (Shard& shard : shards_) {
    for (size_t i = 0;;) {
      Holding taken;
      bool found = false;
      {
        SpinGuard guard(&shard.lock);
        for (; i < shard.room && !found; ++i) {
          Holding* place = &shard.places[i];
          if (place->kind == HoldingKind::kNone || !matches(*place)) continue;
          taken = *place;
          found = true;
          Erase(&shard, place);
          --i;  // erasing may have moved another holding into this place
        }
      }
      if (!found) break;
      use(taken);
    }
  }
}

}  // namespace gpufence
