// What this process holds: driver pointer or handle -> the charge behind it.
// A hash table that costs the same with ten and with a million entries; process-local, wiped on
// fork. Must not know CUDA: keys are numbers, kinds are the caller's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/locks.h"

namespace gpufence {

// Which space of numbers a key is from: the same number may be an address and a handle.
enum class HoldingKind : uint8_t {
  kNone = 0,
  kAddress,          // device address: linear, managed, stream-ordered or imported memory; pieces
                     // that share chunks are in policy/chunks
  kPhysical,         // allocation handle of cuMemCreate
  kMapping,          // mapped address; owner: allocation handle
  kArray,            // array handle
  kMipmap,           // mipmapped array handle
  kPool,             // pool handle; owner: its account
  kGraphExec,        // executable graph; bytes: what its allocation nodes need
  kContext,          // context handle; `context`: number of its booking
  kLink,             // place in an array or multicast object (`context`); owner: allocation handle
  kExported,         // allocation handle that another process may hold, too
  kExportedAddress,  // the same for an address
  kExportedPointer,  // the same for a pool's piece that others open by its pointer
  kExportedBlock,    // address of a pool's block; owner: its account; count: memory/exported.cpp
  kStream,           // stream handle
  kChannels,         // of a context's streams, by its handle; count: living ones
};

// What an address is, so that any free gives back the right charge.
enum class Family : uint8_t {
  kPlain = 0,      // charged as it is; linear memory that fills its chunks, too
  kHosted,         // the same of physical memory on the host, where memory is oversold
  kLinear,         // shares chunks; owner: where it lies
  kManaged,        // small sizes as linear
  kSmallArray,     // shares chunks with others; owner: its place, as foreseen
  kUnified,        // managed memory that stays on the host, where memory is oversold
  kStreamOrdered,  // owner: its pool's account, which carries the charge
  kGraph,          // owned by graph memory, which carries the charge
  kImport,         // another process pays
};

struct Holding {
  uint64_t key = 0;
  uint64_t bytes = 0;    // as reserved; of a piece that shares chunks its own
  uint64_t context = 0;  // that ends it, or 0
  uint64_t owner = 0;    // see HoldingKind and Family
  uint32_t count = 0;    // references, where a kind has them; of an array: bytes of an element
  uint16_t device = 0;   // index in this process's device table
  HoldingKind kind = HoldingKind::kNone;
  Family family = Family::kPlain;
};

// A copy made field by field. What seldom runs is handed one, so that the original never has to be
// in memory: a holding is seven words in registers on the way that is common.
inline Holding CopyOf(const Holding& holding) {
  return {.key = holding.key,
          .bytes = holding.bytes,
          .context = holding.context,
          .owner = holding.owner,
          .count = holding.count,
          .device = holding.device,
          .kind = holding.kind,
          .family = holding.family};
}

class Holdings {
 public:
  // Adds it, where nothing is under its key and the table need not grow. False: neither happened,
  // and Put does what is left.
  bool PutNew(const Holding& holding);

  // Adds or replaces; false when no memory could be had for the table. `replaced`, if not null, is
  // what was there before: of kind kNone, and nothing else said, when nothing was.
  bool Put(const Holding& holding, Holding* replaced = nullptr);

  // Removes and returns it; false when there is none.
  bool Take(HoldingKind kind, uint64_t key, Holding* out);

  // The same for an address, where it is of this family.
  bool TakeAddressOf(Family family, uint64_t address, Holding* out);

  // Reads it; false when there is none.
  bool Get(HoldingKind kind, uint64_t key, Holding* out);

  // Adds `delta` to the references of a holding and returns the new count; -1 when there is none.
  // At zero the holding is removed and copied to *out.
  int64_t AddReference(HoldingKind kind, uint64_t key, int delta, Holding* out);

  // Removes, one after the other, all for which matches(holding) is true, handing each to
  // use(holding) outside of any lock. What is there when it begins, and nobody else takes, is
  // taken. O(table).
  template <typename Matches, typename Use>
  void TakeWhere(Matches matches, Use use);

 private:
  static constexpr size_t kShards = 64;
  static constexpr uint32_t kFirstRoom = 4;
  static constexpr uint32_t kSecondRoom = 64;

  // Places with kNone have nothing else to say. The first ones lie in the shard itself: behind a
  // driver call each page costs a walk, and most processes hold few. Of these every search begins
  // with the one that lies on the line of the lock.
  struct alignas(64) Shard {
    SpinLock lock;
    uint32_t mask;       // the number of places less one, where there are any: a power of two
    Holding* places;     // null: none yet
    uint32_t left;       // that may be taken before the table grows
    uint32_t home_mask;  // of the places at which a search begins
    Holding first[kFirstRoom];
  };

  static uint32_t RoomOf(const Shard& shard) {
    return shard.places != nullptr ? shard.mask + 1 : 0;
  }
  static Holding* Find(Shard* shard, uint64_t mixed, HoldingKind kind, uint64_t key);
  [[gnu::noinline]] static Holding* FindBehind(Shard* shard, Holding* place, HoldingKind kind,
                                               uint64_t key);
  [[gnu::cold, gnu::noinline]] static bool Grow(Shard* shard);
  static void Insert(Shard* shard, const Holding& holding);
  static void Write(Holding* place, const Holding& holding);
  static void Erase(Shard* shard, Holding* place);
  [[gnu::noinline]] static void CloseGap(Shard* shard, size_t gap);
  template <typename Matches>
  static bool TakeAnyWhere(Shard* shard, uint32_t* from, Matches matches, Holding* taken);
  Shard* ShardOf(uint64_t mixed);

  Shard shards_[kShards];
};

// Implementation.

// While the shard is unlocked others close gaps and grow its table, which moves holdings to where
// it was looked already. So a shard is done when one look at all of its places, under one lock,
// finds nothing.
template <typename Matches, typename Use>
void Holdings::TakeWhere(Matches matches, Use use) {
  for (Shard& shard : shards_) {
    Holding taken;
    for (uint32_t from = 0; TakeAnyWhere(&shard, &from, matches, &taken);) use(taken);
  }
}

template <typename Matches>
bool Holdings::TakeAnyWhere(Shard* shard, uint32_t* from, Matches matches, Holding* taken) {
  SpinGuard guard(&shard->lock);
  const uint32_t room = RoomOf(*shard);
  for (uint32_t seen = 0; seen < room; ++seen, ++*from) {
    *from &= shard->mask;
    Holding* place = &shard->places[*from];
    if (place->kind == HoldingKind::kNone || !matches(*place)) continue;
    *taken = *place;
    Erase(shard, place);  // another holding may have moved into this place
    return true;
  }
  return false;
}

}  // namespace gpufence
