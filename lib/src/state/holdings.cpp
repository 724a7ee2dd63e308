#include "state/holdings.h"

#include <string.h>

#include "base/forked.h"

namespace gpufence {
namespace {

uint64_t Mix(HoldingKind kind, uint64_t key) {
  // Keys come in steps of powers of two: their difference is in the upper half of the product.
  const uint64_t mixed = (key ^ (static_cast<uint64_t>(kind) << 40)) * 0x9e3779b97f4a7c15u;
  return mixed ^ (mixed >> 32);
}

// The low bits choose the shard, the others the place in it.
size_t Home(uint64_t mixed, size_t mask) { return static_cast<size_t>(mixed >> 6) & mask; }

size_t Home(const Holding& holding, size_t mask) {
  return Home(Mix(holding.kind, holding.key), mask);
}

bool IsFree(const Holding& place) { return place.kind == HoldingKind::kNone; }

bool Holds(const Holding& place, HoldingKind kind, uint64_t key) {
  return place.key == key && place.kind == kind;
}

}  // namespace

// Behind a driver call its lines are cold, and a locked instruction waits until nothing is before
// it and lets nothing pass: unfetched, the line of the lock and that of a place would be waited for
// one after the other, behind all else.
Holdings::Shard* Holdings::ShardOf(uint64_t mixed) {
  Shard* shard = &shards_[mixed % kShards];
  __builtin_prefetch(shard);
  return shard;
}

// The place that holds the key, or the free one where it would be put. Most are found at once.
inline Holding* Holdings::Find(Shard* shard, uint64_t mixed, HoldingKind kind, uint64_t key) {
  if (shard->places == nullptr) [[unlikely]]
    return nullptr;
  Holding* place = &shard->places[Home(mixed, shard->home_mask)];
  if (Holds(*place, kind, key) || IsFree(*place)) [[likely]]
    return place;
  return FindBehind(shard, place, kind, key);
}

Holding* Holdings::FindBehind(Shard* shard, Holding* place, HoldingKind kind, uint64_t key) {
  for (size_t i = static_cast<size_t>(place - shard->places);;) {
    i = (i + 1) & shard->mask;
    place = &shard->places[i];
    if (Holds(*place, kind, key) || IsFree(*place)) return place;
  }
}

void Holdings::Insert(Shard* shard, const Holding& holding) {
  *Find(shard, Mix(holding.kind, holding.key), holding.kind, holding.key) = holding;
  --shard->left;
}

// At most three quarters full, so that chains stay short.
bool Holdings::Grow(Shard* shard) {
  const uint32_t old_room = RoomOf(*shard);
  Holding* old_places = shard->places;
  const uint32_t room = old_room < kSecondRoom ? kSecondRoom : old_room * 2;
  void* places = old_room == 0 ? shard->first : MapWipedOnFork(room * sizeof(Holding));
  if (places == nullptr) return false;
  shard->places = static_cast<Holding*>(places);
  shard->mask = (old_room == 0 ? kFirstRoom : room) - 1;
  shard->home_mask = old_room == 0 ? 0 : shard->mask;
  shard->left = RoomOf(*shard) / 4 * 3;
  for (uint32_t i = 0; i < old_room; ++i) {
    if (!IsFree(old_places[i])) Insert(shard, old_places[i]);
  }
  if (old_room > kFirstRoom) UnmapWipedOnFork(old_places, old_room * sizeof(Holding));
  return true;
}

void Holdings::Erase(Shard* shard, Holding* place) {
  ++shard->left;
  place->kind = HoldingKind::kNone;
  const Holding* last = shard->places + shard->mask;
  const Holding* next = place == last ? shard->places : place + 1;
  if (!IsFree(*next)) [[unlikely]]
    CloseGap(shard, static_cast<size_t>(place - shard->places));
}

// Closes the gap instead of leaving a marker: a table that lives for weeks does not fill up with
// the traces of what was freed.
void Holdings::CloseGap(Shard* shard, size_t gap) {
  const size_t mask = shard->mask;
  for (size_t i = (gap + 1) & mask; shard->places[i].kind != HoldingKind::kNone;
       i = (i + 1) & mask) {
    const size_t home = Home(shard->places[i], shard->home_mask);
    if (((i - home) & mask) < ((i - gap) & mask)) continue;
    shard->places[gap] = shard->places[i];
    gap = i;
  }
  shard->places[gap].kind = HoldingKind::kNone;
}

// One by one: taken together they would be read back from where they were just written.
void Holdings::Write(Holding* place, const Holding& holding) {
  place->key = holding.key;
  place->bytes = holding.bytes;
  place->context = holding.context;
  place->owner = holding.owner;
  place->count = holding.count;
  place->device = holding.device;
  place->kind = holding.kind;
  place->family = holding.family;
}

bool Holdings::PutNew(const Holding& holding) {
  const uint64_t mixed = Mix(holding.kind, holding.key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  if (shard->left == 0) [[unlikely]]  // and where there are no places yet
    return false;
  Holding* place = &shard->places[Home(mixed, shard->home_mask)];
  if (!IsFree(*place)) [[unlikely]] {
    place = Find(shard, mixed, holding.kind, holding.key);
    if (!IsFree(*place)) return false;
  }
  Write(place, holding);
  --shard->left;
  return true;
}

bool Holdings::Put(const Holding& holding, Holding* replaced) {
  const uint64_t mixed = Mix(holding.kind, holding.key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, holding.kind, holding.key);
  const bool is_new = place == nullptr || IsFree(*place);
  if (replaced != nullptr) replaced->kind = HoldingKind::kNone;
  if (!is_new) {
    if (replaced != nullptr) *replaced = *place;
  } else if (shard->left == 0) {
    if (!Grow(shard)) return false;
    place = Find(shard, mixed, holding.kind, holding.key);
  }
  Write(place, holding);
  shard->left -= is_new ? 1 : 0;
  return true;
}

bool Holdings::Take(HoldingKind kind, uint64_t key, Holding* out) {
  const uint64_t mixed = Mix(kind, key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, kind, key);
  if (place == nullptr || IsFree(*place)) return false;
  *out = *place;
  Erase(shard, place);
  return true;
}

bool Holdings::TakeAddressOf(Family family, uint64_t address, Holding* out) {
  const uint64_t mixed = Mix(HoldingKind::kAddress, address);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, HoldingKind::kAddress, address);
  if (place == nullptr || IsFree(*place) || place->family != family) {
    return false;
  }
  *out = *place;
  Erase(shard, place);
  return true;
}

bool Holdings::Get(HoldingKind kind, uint64_t key, Holding* out) {
  const uint64_t mixed = Mix(kind, key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  const Holding* place = Find(shard, mixed, kind, key);
  if (place == nullptr || IsFree(*place)) return false;
  *out = *place;
  return true;
}

int64_t Holdings::AddReference(HoldingKind kind, uint64_t key, int delta, Holding* out) {
  const uint64_t mixed = Mix(kind, key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, kind, key);
  if (place == nullptr || IsFree(*place)) return -1;
  const int64_t sum = static_cast<int64_t>(place->count) + delta;
  const uint32_t count = sum > 0 ? static_cast<uint32_t>(sum) : 0;
  // Copied before it is written, so that nothing is read back from where it was just written.
  *out = *place;
  out->count = count;
  if (count != 0) {
    place->count = count;
  } else {
    Erase(shard, place);
  }
  return count;
}

}  // namespace gpufence
