#include "state/holdings.h"

#include <string.h>

#include "core/forked.h"

namespace gpufence {
namespace {

uint64_t Mix(HoldingKind kind, uint64_t key) {
  uint64_t mixed = key ^ (static_cast<uint64_t>(kind) << 56);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

size_t Home(const Holding& holding, size_t room) {
  return static_cast<size_t>(Mix(holding.kind, holding.key) >> 6) & (room - 1);
}

}  // namespace

Holdings::Shard* Holdings::ShardOf(HoldingKind kind, uint64_t key) {
  return &shards_[Mix(kind, key) % kShards];
}

Holding* Holdings::Find(Shard* shard, HoldingKind kind, uint64_t key) {
  if (shard->room == 0) return nullptr;
  Holding wanted = {};
  wanted.kind = kind;
  wanted.key = key;
  for (size_t i = Home(wanted, shard->room);; i = (i + 1) & (shard->room - 1)) {
    Holding* place = &shard->places[i];
    if (place->kind == HoldingKind::kNone) return nullptr;
    if (place->kind == kind && place->key == key) return place;
  }
}

void Holdings::Insert(Shard* shard, const Holding& holding) {
  size_t i = Home(holding, shard->room);
  while (shard->places[i].kind != HoldingKind::kNone) i = (i + 1) & (shard->room - 1);
  shard->places[i] = holding;
  ++shard->used;
}

// At most three quarters full, so that chains stay short.
bool Holdings::Grow(Shard* shard) {
  if (shard->used * 4 < shard->room * 3) return true;
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

// Closes the gap instead of leaving a marker: a table that lives for weeks does not fill up with
// the traces of what was freed.
void Holdings::Erase(Shard* shard, Holding* place) {
  const size_t mask = shard->room - 1;
  size_t gap = static_cast<size_t>(place - shard->places);
  for (size_t i = (gap + 1) & mask; shard->places[i].kind != HoldingKind::kNone;
       i = (i + 1) & mask) {
    const size_t home = Home(shard->places[i], shard->room);
    if (((i - home) & mask) < ((i - gap) & mask)) continue;
    shard->places[gap] = shard->places[i];
    gap = i;
  }
  shard->places[gap] = Holding{};
  --shard->used;
}

bool Holdings::Put(const Holding& holding, Holding* replaced) {
  Shard* shard = ShardOf(holding.kind, holding.key);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, holding.kind, holding.key);
  if (replaced != nullptr) *replaced = place != nullptr ? *place : Holding{};
  if (place != nullptr) {
    *place = holding;
    return true;
  }
  if (!Grow(shard)) return false;
  Insert(shard, holding);
  return true;
}

bool Holdings::Take(HoldingKind kind, uint64_t key, Holding* out) {
  Shard* shard = ShardOf(kind, key);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, kind, key);
  if (place == nullptr) return false;
  *out = *place;
  Erase(shard, place);
  return true;
}

bool Holdings::Get(HoldingKind kind, uint64_t key, Holding* out) {
  Shard* shard = ShardOf(kind, key);
  SpinGuard guard(&shard->lock);
  const Holding* place = Find(shard, kind, key);
  if (place == nullptr) return false;
  *out = *place;
  return true;
}

int64_t Holdings::AddReference(HoldingKind kind, uint64_t key, int delta, Holding* out) {
  Shard* shard = ShardOf(kind, key);
  SpinGuard guard(&shard->lock);
  Holding* place = Find(shard, kind, key);
  if (place == nullptr) return -1;
  const int64_t count = static_cast<int64_t>(place->count) + delta;
  place->count = count > 0 ? static_cast<uint32_t>(count) : 0;
  *out = *place;
  if (place->count == 0) Erase(shard, place);
  return out->count;
}

}  // namespace gpufence
