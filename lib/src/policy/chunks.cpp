#include "policy/chunks.h"

#include <string.h>

#include "core/forked.h"

namespace gpufence {
namespace {

uint64_t NumberOf(uint64_t address) { return address / kChunkBytes; }

uint32_t FirstUnit(uint64_t address) {
  return static_cast<uint32_t>(address % kChunkBytes / kSmallStep);
}

uint32_t Units(uint64_t bytes) {
  return static_cast<uint32_t>(RoundUp(bytes, kSmallStep) / kSmallStep);
}

size_t Home(uint64_t number, size_t room) {
  return static_cast<size_t>((number * 0x9e3779b97f4a7c15u) >> 32) & (room - 1);
}

}  // namespace

ChunkTable::Chunk* ChunkTable::Find(uint64_t number) {
  if (room_ == 0 || number == 0) return nullptr;
  for (size_t i = Home(number, room_);; i = (i + 1) & (room_ - 1)) {
    if (chunks_[i].number == number) return &chunks_[i];
    if (chunks_[i].number == 0) return nullptr;
  }
}

// Chunks that are gone stay in the table until it is full: most come back at the same address.
ChunkTable::Chunk* ChunkTable::FindOrAdd(uint64_t number) {
  Chunk* found = Find(number);
  if (found != nullptr) return found;
  if (used_ * 4 >= room_ * 3 && !Grow()) return nullptr;
  size_t i = Home(number, room_);
  while (chunks_[i].number != 0) i = (i + 1) & (room_ - 1);
  chunks_[i].number = number;
  ++used_;
  return &chunks_[i];
}

bool ChunkTable::Grow() {
  const size_t old_room = room_;
  Chunk* old_chunks = chunks_;
  size_t room = kFirstRoom;
  while (room < open_ * 2 + 2) room *= 2;
  void* memory = MapWipedOnFork(room * sizeof(Chunk));
  if (memory == nullptr) return false;
  chunks_ = static_cast<Chunk*>(memory);
  room_ = room;
  used_ = 0;
  for (size_t i = 0; i < old_room; ++i) {
    if (!old_chunks[i].open()) continue;
    size_t place = Home(old_chunks[i].number, room);
    while (chunks_[place].number != 0) place = (place + 1) & (room - 1);
    chunks_[place] = old_chunks[i];
    ++used_;
  }
  if (old_chunks != nullptr) UnmapWipedOnFork(old_chunks, old_room * sizeof(Chunk));
  return true;
}

void ChunkTable::Mark(Chunk* chunk, uint32_t first, uint32_t count, bool used) {
  const uint32_t end = first + count < kChunkUnits ? first + count : kChunkUnits;
  while (first < end) {
    const uint32_t bit = first % 64;
    const uint32_t here = end - first < 64 - bit ? end - first : 64 - bit;
    const uint64_t mask = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << bit;
    uint64_t* word = &chunk->used[first / 64];
    *word = used ? *word | mask : *word & ~mask;
    first += here;
  }
}

// The free units from `first` on.
uint32_t ChunkTable::FreeFrom(const Chunk& chunk, uint32_t first) {
  for (uint32_t unit = first; unit < kChunkUnits; unit = (unit / 64 + 1) * 64) {
    const uint64_t used = chunk.used[unit / 64] >> (unit % 64);
    if (used != 0) return unit + static_cast<uint32_t>(__builtin_ctzll(used)) - first;
  }
  return first < kChunkUnits ? kChunkUnits - first : 0;
}

// The first run of free units at or after `from`; none: of no units.
ChunkTable::Run ChunkTable::NextRun(const Chunk& chunk, uint32_t from) {
  uint32_t unit = from;
  while (unit < kChunkUnits) {
    const uint64_t free_units = ~chunk.used[unit / 64] >> (unit % 64);
    if (free_units != 0) {
      unit += static_cast<uint32_t>(__builtin_ctzll(free_units));
      return {chunk.number, unit, FreeFrom(chunk, unit)};
    }
    unit = (unit / 64 + 1) * 64;
  }
  return {chunk.number, kChunkUnits, 0};
}

// Of those runs that `count` units fit in, as the driver chooses; none: of no units. What is on its
// way out is no room yet, and neither is what lies beside it.
ChunkTable::Run ChunkTable::SmallestRun(uint64_t heap, uint32_t count) {
  Run best = {0, 0, 0};
  for (size_t i = 0; i < room_; ++i) {
    const Chunk& chunk = chunks_[i];
    if (!chunk.open() || chunk.heap != heap || chunk.leaving > 0 || chunk.is_opaque) continue;
    for (Run run = NextRun(chunk, 0); run.count > 0; run = NextRun(chunk, run.first + run.count)) {
      if (run.count >= count && (best.count == 0 || run.count < best.count)) best = run;
    }
  }
  return best;
}

// Keeps the run behind the newest piece in mind, or an older one that is longer.
void ChunkTable::Remember(const Chunk& chunk, uint32_t first, uint32_t count) {
  if (chunk.is_opaque) return;
  const uint32_t end = first + count;
  if (hint_.number == chunk.number && hint_.count > 0) {
    const uint32_t hint_end = hint_.first + hint_.count;
    if (end == hint_.first) return;
    if (first < hint_end && end > hint_.first) {
      hint_ = {chunk.number, end, hint_end > end ? hint_end - end : 0};
      return;
    }
  }
  const uint32_t free_units = FreeFrom(chunk, end);
  if (free_units > hint_.count) hint_ = {chunk.number, end, free_units};
}

bool ChunkTable::TryRely(uint64_t heap, uint32_t count, bool thorough) {
  if (is_relied_on_ || owed_ || surprises_ >= kMostSurprises) return false;
  const Chunk* chunk = hint_.count >= count ? Find(hint_.number) : nullptr;
  const bool is_hinted =
      chunk != nullptr && chunk->open() && chunk->heap == heap && chunk->leaving == 0;
  is_relied_on_ = is_hinted || (thorough && SmallestRun(heap, count).count > 0);
  return is_relied_on_;
}

bool ChunkTable::Rely(uint64_t heap, uint64_t bytes) {
  SpinGuard guard(&lock_);
  if (TryRely(heap, Units(bytes), /*thorough=*/false)) return true;
  ++asking_;
  return false;
}

void ChunkTable::Paid() {
  SpinGuard guard(&lock_);
  --asking_;
  ++paid_;
}

ChunkTable::Room ChunkTable::NotPaid(uint64_t heap, uint64_t bytes) {
  SpinGuard guard(&lock_);
  --asking_;
  if (TryRely(heap, Units(bytes), /*thorough=*/true)) return Room::kHole;
  return IsBusy() ? Room::kMaybe : Room::kNone;
}

// What the driver places for itself (a module's variables) may lie where a hole seems to be.
void ChunkTable::BeSurprised() {
  ++surprises_;
  hint_.count = 0;
  for (size_t i = 0; i < room_; ++i) chunks_[i].is_opaque = chunks_[i].open();
}

// A charge that nobody needs any more pays what is owed, or is kept for the one who may yet need
// it.
ChunkDue ChunkTable::Spare() {
  if (owed_) {
    owed_ = false;
  } else if (is_relied_on_ && !is_kept_) {
    is_kept_ = true;
  } else {
    ++returning_;
    return ChunkDue::kSurplus;
  }
  return ChunkDue::kNothing;
}

// A chunk that is owed when nobody is left who could pay: the driver did what was not foreseen.
ChunkDue ChunkTable::OrOwed(ChunkDue due) {
  if (!owed_ || paid_ + leaving_ > 0) return due;
  owed_ = false;
  BeSurprised();
  return ChunkDue::kUnpaid;
}

ChunkDue ChunkTable::EndRequest(bool paid, bool opened) {
  if (paid) {
    --paid_;
    return OrOwed(opened ? ChunkDue::kNothing : Spare());
  }
  is_relied_on_ = false;
  const bool was_kept = is_kept_;
  is_kept_ = false;
  if (opened) {
    owed_ = !was_kept;
    return OrOwed(ChunkDue::kNothing);
  }
  return was_kept ? Spare() : ChunkDue::kNothing;
}

void ChunkTable::Place(Chunk* chunk, uint64_t heap, uint32_t first, uint32_t count) {
  if (!chunk->open()) {
    memset(chunk->used, 0, sizeof chunk->used);
    chunk->heap = heap;
    chunk->is_opaque = false;
    ++open_;
  }
  ++chunk->pieces;
  Mark(chunk, first, count, true);
  Remember(*chunk, first, count);
}

ChunkDue ChunkTable::Placed(const SmallPiece& piece, bool paid) {
  SpinGuard guard(&lock_);
  Chunk* chunk = FindOrAdd(NumberOf(piece.address));
  // Charged for good rather than lost, where no memory is left to remember it.
  if (chunk == nullptr) return EndRequest(paid, true);
  const bool opened = !chunk->open();
  Place(chunk, piece.heap, FirstUnit(piece.address), Units(piece.bytes));
  return EndRequest(paid, opened);
}

ChunkDue ChunkTable::Failed(bool paid) {
  SpinGuard guard(&lock_);
  return EndRequest(paid, false);
}

void ChunkTable::Leave(const SmallPiece& piece) {
  SpinGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(piece.address));
  if (chunk == nullptr || chunk->pieces == 0) return;
  --chunk->pieces;
  ++chunk->leaving;
  ++leaving_;
  Mark(chunk, FirstUnit(piece.address), Units(piece.bytes), false);
}

ChunkDue ChunkTable::Stay(const SmallPiece& piece) {
  SpinGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(piece.address));
  if (chunk == nullptr || chunk->leaving == 0) return ChunkDue::kNothing;
  --chunk->leaving;
  --leaving_;
  ++chunk->pieces;
  Mark(chunk, FirstUnit(piece.address), Units(piece.bytes), true);
  if (hint_.number == chunk->number) hint_.count = 0;  // it may have spread over this place
  return OrOwed(ChunkDue::kNothing);
}

ChunkDue ChunkTable::Left(uint64_t address) {
  SpinGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(address));
  if (chunk == nullptr || chunk->leaving == 0) return ChunkDue::kNothing;
  --chunk->leaving;
  --leaving_;
  if (chunk->open()) return OrOwed(ChunkDue::kNothing);
  --open_;
  if (hint_.number == chunk->number) hint_.count = 0;
  return Spare();
}

void ChunkTable::GaveBack() {
  SpinGuard guard(&lock_);
  --returning_;
}

bool ChunkTable::IsBusy() const {
  return is_relied_on_ || asking_ + paid_ + leaving_ + returning_ > 0;
}

bool ChunkTable::busy() {
  SpinGuard guard(&lock_);
  return IsBusy();
}

uint64_t ChunkTable::chunks() {
  SpinGuard guard(&lock_);
  return open_;
}

}  // namespace gpufence
