#include "state/holdings.h"

#include <string.h>

#include "core/forked.h"

namespace gpufence {
namespace {

uint64_t Mix(HoldingKind kind, uint64_t key) {
  // Keys come in steps of powers of two: their difference is in the upper half of the product.
  const uint64_t mixed = (key ^ (static_cast<uint64_t>(kind) << 40)) * 0x9e3779b97f4a7c15u;
  return mixed ^ (mixed >> 32);
}

// The low bits choose the shard, the others the place in it.
size_t Home(uint64_t mixed, size_t room) { return static_cast<size_t>(mixed >> 6) & (room - 1); }

size_t Home(const Holding& holding, size_t room) {
  return Home(Mix(holding.kind, holding.key), room);
}

}  // namespace

Holdings::Shard* Holdings::ShardOf(uint64_t mixed) { return &shards_[mixed % kShards]; }

// The place that holds the key, or the free one where it would be put.
inline Holding* Holdings::Find(Shard* shard, uint64_t mixed, HoldingKind kind, uint64_t key) {
  if (shard->room == 0) return nullptr;
  for (size_t i = Home(mixed, shard->room);; i = (i + 1) & (shard->room - 1)) {
    Holding* place = &shard->places[i];
    if (place->kind == HoldingKind::kNone || (place->key == key && place->kind == kind))
        [[likely]] {
      return place;
    }
  }
}

void Holdings::Insert(Shard* shard, const Holding& holding) {
  *Find(shard, Mix(holding.kind, holding.key), holding.kind, holding.key) = holding;
  ++shard->used;
}

// At most three quarters full, so that chains stay short.
bool Holdings::Grow(Shard* shard) {
  const size_t old_room = shard->room;
  Holding* old_places = shard->places;
  const size_t room = old_room == 0 ? kFirstRoom : old_room * 2;
  void* places = MapWipedOnFork(room * sizeof(Holding));
  if (places == nullptr) return false;
  shard->places = static_cast<Holding*>(places);
  shard->room = room;
  shard->used = 0;
  for (size_t i = 0; i < old_room; ++i) {
    if (old_places[i].kind != HoldingKind::kNone) Insert(shard, old_places[i]);
  }
  if (old_places != nullptr) UnmapWipedOnFork(old_places, old_room * sizeof(Holding));
  return true;
}

void Holdings::Erase(Shard* shard, Holding* place) {
  --shard->used;
  place->kind = HoldingKind::kNone;
  const Holding* end = shard->places + shard->room;
  const Holding* next = place + 1 == end ? shard->places : place + 1;
  if (next->kind != HoldingKind::kNone) CloseGap(shard, static_cast<size_t>(place - shard->places));
}

// Closes the gap instead of leaving a marker: a table that lives for weeks does not fill up with
// the traces of what was freed.
void Holdings::CloseGap(Shard* shard, size_t gap) {
  const size_t mask = shard->room - 1;
  for (size_t i = (gap + 1) & mask; shard->places[i].kind != HoldingKind::kNone;
       i = (i + 1) & mask) {
    const size_t home = Home(shard->places[i], shard->room);
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
  if (IsFull(*shard)) [[unlikely]]
    return false;
  Holding* place = Find(shard, mixed, holding.kind, holding.key);
  if (place->kind != HoldingKind::kNone) [[unlikely]]
    return false;
  Write(place, holding);
  ++shard->used;
  return true;
}

bool Holdings::Put(const Holding& holding, Holding* replaced) {
  const uint64_t mixed = Mix(holding.kind, holding.key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, holding.kind, holding.key);
  const bool is_new = place == nullptr || place->kind == HoldingKind::kNone;
  if (replaced != nullptr) replaced->kind = HoldingKind::kNone;
  if (!is_new) {
    if (replaced != nullptr) *replaced = *place;
  } else if (IsFull(*shard)) {
    if (!Grow(shard)) return false;
    place = Find(shard, mixed, holding.kind, holding.key);
  }
  Write(place, holding);
  shard->used += is_new ? 1 : 0;
  return true;
}

bool Holdings::Take(HoldingKind kind, uint64_t key, Holding* out) {
  const uint64_t mixed = Mix(kind, key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, kind, key);
  if (place == nullptr || place->kind == HoldingKind::kNone) return false;
  *out = *place;
  Erase(shard, place);
  return true;
}

bool Holdings::TakeAddressOf(Family family, uint64_t address, Holding* out) {
  const uint64_t mixed = Mix(HoldingKind::kAddress, address);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, HoldingKind::kAddress, address);
  if (place == nullptr || place->kind == HoldingKind::kNone || place->family != family) {
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
  if (place == nullptr || place->kind == HoldingKind::kNone) return false;
  *out = *place;
  return true;
}

int64_t Holdings::AddReference(HoldingKind kind, uint64_t key, int delta, Holding* out) {
  const uint64_t mixed = Mix(kind, key);
  Shard* shard = ShardOf(mixed);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, mixed, kind, key);
  if (place == nullptr || place->kind == HoldingKind::kNone) return -1;
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
