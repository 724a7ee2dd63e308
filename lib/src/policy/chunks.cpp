#include "policy/chunks.h"

#include "base/forked.h"
#include "policy/account.h"
#include "policy/patience.h"

namespace gpufence {

// ---- the table ----

namespace {

uint64_t NumberOf(uint64_t address) { return address / kChunkBytes; }

uint32_t FirstUnit(uint64_t address) {
  return static_cast<uint32_t>(address % kChunkBytes / kSmallStep);
}

uint32_t UnitsIn(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kSmallStep - 1) / kSmallStep);
}

size_t Home(uint64_t number, size_t room) {
  return static_cast<size_t>((number * 0x9e3779b97f4a7c15u) >> 32) & (room - 1);
}

// The bits of `count` units from `first` on in their word; at least one.
constexpr uint64_t MaskOf(uint32_t first, uint32_t count) {
  return (~uint64_t{0} >> (64 - count)) << (first % 64);
}

// Calls use(word, mask) for each word of 64 units that a run has a part in; most lie in one.
template <typename Use>
void ForWords(uint32_t first, uint32_t count, Use use) {
  if (first % 64 + count <= 64) [[likely]]
    return use(first / 64, MaskOf(first, count));
  const uint32_t end = first + count < kChunkUnits ? first + count : kChunkUnits;
  while (first < end) {
    const uint32_t left = 64 - first % 64;
    const uint32_t here = end - first < left ? end - first : left;
    use(first / 64, MaskOf(first, here));
    first += here;
  }
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
ChunkTable::Chunk* ChunkTable::Add(uint64_t number) {
  if (used_ * 4 >= room_ * 3 && !Grow()) return nullptr;
  size_t i = Home(number, room_);
  while (chunks_[i].number != 0) i = (i + 1) & (room_ - 1);
  chunks_[i].number = number;
  ++used_;
  return &chunks_[i];
}

bool ChunkTable::Grow() {
  const uint32_t old_room = room_;
  Chunk* old_chunks = chunks_;
  uint32_t room = kFirstRoom;
  while (room < chunks() * 2 + 2) room *= 2;
  void* memory = MapWipedOnFork(room * sizeof(Chunk));
  if (memory == nullptr) return false;
  chunks_ = static_cast<Chunk*>(memory);
  room_ = room;
  used_ = 0;
  for (uint32_t i = 0; i < old_room; ++i) {
    if (!old_chunks[i].open()) continue;
    size_t place = Home(old_chunks[i].number, room);
    while (chunks_[place].number != 0) place = (place + 1) & (room - 1);
    chunks_[place] = old_chunks[i];
    ++used_;
  }
  if (old_chunks != nullptr) UnmapWipedOnFork(old_chunks, old_room * sizeof(Chunk));
  return true;
}

// A piece more. Those that began where it lies ended by a door that was not seen.
void ChunkTable::Put(Chunk* chunk, uint32_t first, uint32_t count) {
  ForWords(first, count, [&](uint32_t word, uint64_t mask) {
    Units* units = &chunk->units[word];
    units->used |= mask;
    if ((units->begins & mask) == 0) [[likely]]
      return;
    chunk->pieces -= static_cast<uint32_t>(__builtin_popcountll(units->begins & mask));
    units->begins &= ~mask;
  });
  chunk->units[first / 64].begins |= uint64_t{1} << (first % 64);
  ++chunk->pieces;
}

// A piece less.
void ChunkTable::Remove(Chunk* chunk, uint32_t first, uint32_t count) {
  chunk->units[first / 64].begins &= ~(uint64_t{1} << (first % 64));
  ForWords(first, count, [&](uint32_t word, uint64_t mask) { chunk->units[word].used &= ~mask; });
  --chunk->pieces;
}

// What the piece that begins at `first` takes: up to the next one, or to what is free.
uint32_t ChunkTable::UnitsOf(const Chunk& chunk, uint32_t first) {
  for (uint32_t unit = first + 1; unit < kChunkUnits; unit = (unit / 64 + 1) * 64) {
    const Units& units = chunk.units[unit / 64];
    const uint64_t ends = (units.begins | ~units.used) >> (unit % 64);
    if (ends != 0) [[likely]]
      return unit + static_cast<uint32_t>(__builtin_ctzll(ends)) - first;
  }
  return kChunkUnits - first;
}

// The piece that begins at `first`, if one does.
bool ChunkTable::Read(const Chunk* chunk, uint32_t first, SmallPiece* piece) {
  if (chunk == nullptr || chunk->pieces == 0) return false;
  if ((chunk->units[first / 64].begins >> (first % 64) & 1) == 0) return false;
  *piece = {chunk->heap, chunk->number * kChunkBytes + first * kSmallStep,
            UnitsOf(*chunk, first) * kSmallStep};
  return true;
}

// The free units from `first` on.
uint32_t ChunkTable::FreeFrom(const Chunk& chunk, uint32_t first) {
  for (uint32_t unit = first; unit < kChunkUnits; unit = (unit / 64 + 1) * 64) {
    const uint64_t used = chunk.units[unit / 64].used >> (unit % 64);
    if (used != 0) return unit + static_cast<uint32_t>(__builtin_ctzll(used)) - first;
  }
  return first < kChunkUnits ? kChunkUnits - first : 0;
}

// The first run of free units at or after `from`; none: of no units.
ChunkTable::Run ChunkTable::NextRun(const Chunk& chunk, uint32_t from) {
  uint32_t unit = from;
  while (unit < kChunkUnits) {
    const uint64_t free_units = ~chunk.units[unit / 64].used >> (unit % 64);
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
  const bool is_alone = chunk.pieces == 1 && end < kChunkUnits;
  const uint32_t free_units = is_alone ? kChunkUnits - end : FreeFrom(chunk, end);
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
  BiasedGuard guard(&lock_);
  if (TryRely(heap, UnitsIn(bytes), /*thorough=*/false)) return true;
  ++asking_;
  return false;
}

void ChunkTable::Paid() {
  BiasedGuard guard(&lock_);
  --asking_;
  ++paid_;
}

ChunkTable::Room ChunkTable::NotPaid(uint64_t heap, uint64_t bytes) {
  BiasedGuard guard(&lock_);
  --asking_;
  if (TryRely(heap, UnitsIn(bytes), /*thorough=*/true)) return Room::kHole;
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

void ChunkTable::Open(Chunk* chunk) {
  chunk->is_opaque = false;
  open_.store(static_cast<uint32_t>(chunks() + 1), std::memory_order_relaxed);
}

void ChunkTable::Close(const Chunk& chunk) {
  open_.store(static_cast<uint32_t>(chunks() - 1), std::memory_order_relaxed);
  if (hint_.number == chunk.number) hint_.count = 0;
}

ChunkDue ChunkTable::Placed(const SmallPiece& piece, bool paid) {
  BiasedGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(piece.address));
  if (chunk == nullptr) [[unlikely]] {
    chunk = Add(NumberOf(piece.address));
    // Charged for good rather than lost, where no memory is left to remember it.
    if (chunk == nullptr) return EndRequest(paid, true);
  }
  const bool opened = !chunk->open();
  if (opened) [[unlikely]]
    Open(chunk);
  // What is another heap's there is gone: none shares a chunk with it.
  chunk->heap = piece.heap;
  const uint32_t first = FirstUnit(piece.address);
  const uint32_t count = UnitsIn(piece.bytes);
  Put(chunk, first, count);
  Remember(*chunk, first, count);
  return EndRequest(paid, opened);
}

ChunkDue ChunkTable::Failed(bool paid) {
  BiasedGuard guard(&lock_);
  return EndRequest(paid, false);
}

bool ChunkTable::Find(uint64_t address, SmallPiece* piece) {
  if (address % kSmallStep != 0) return false;
  BiasedGuard guard(&lock_);
  return Read(Find(NumberOf(address)), FirstUnit(address), piece);
}

void ChunkTable::BeginLeaving(Chunk* chunk, const SmallPiece& piece) {
  Remove(chunk, FirstUnit(piece.address), UnitsIn(piece.bytes));
  ++chunk->leaving;
  ++leaving_;
}

bool ChunkTable::Leave(uint64_t address, SmallPiece* piece) {
  if (address % kSmallStep != 0) return false;
  BiasedGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(address));
  if (!Read(chunk, FirstUnit(address), piece)) return false;
  BeginLeaving(chunk, *piece);
  return true;
}

bool ChunkTable::LeaveAny(uint64_t heap, size_t* from, SmallPiece* piece) {
  BiasedGuard guard(&lock_);
  for (size_t seen = 0; seen < room_; ++seen, ++*from) {
    *from &= room_ - 1;  // it may have grown, and what was behind may lie before
    Chunk* chunk = &chunks_[*from];
    if (chunk->pieces == 0 || chunk->heap != heap) continue;
    for (uint32_t word = 0; word < kWords; ++word) {
      const uint64_t begins = chunk->units[word].begins;
      if (begins == 0) continue;
      Read(chunk, word * 64 + static_cast<uint32_t>(__builtin_ctzll(begins)), piece);
      BeginLeaving(chunk, *piece);
      return true;
    }
  }
  return false;
}

ChunkDue ChunkTable::Stay(const SmallPiece& piece) {
  BiasedGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(piece.address));
  if (chunk == nullptr || chunk->leaving == 0) return ChunkDue::kNothing;
  --chunk->leaving;
  --leaving_;
  Put(chunk, FirstUnit(piece.address), UnitsIn(piece.bytes));
  if (hint_.number == chunk->number) hint_.count = 0;  // it may have spread over this place
  return OrOwed(ChunkDue::kNothing);
}

ChunkDue ChunkTable::Left(uint64_t address) {
  BiasedGuard guard(&lock_);
  Chunk* chunk = Find(NumberOf(address));
  if (chunk == nullptr || chunk->leaving == 0) return ChunkDue::kNothing;
  --chunk->leaving;
  --leaving_;
  if (chunk->open()) [[likely]]
    return OrOwed(ChunkDue::kNothing);
  Close(*chunk);
  return Spare();
}

void ChunkTable::GaveBack() {
  BiasedGuard guard(&lock_);
  --returning_;
}

bool ChunkTable::IsBusy() const {
  return is_relied_on_ || asking_ + paid_ + leaving_ + returning_ > 0;
}

bool ChunkTable::busy() {
  BiasedGuard guard(&lock_);
  return IsBusy();
}

// ---- grants ----

namespace {

void GiveBack(Account* account, ChunkTable* chunks, ChunkDue due, Tier tier) {
  if (due != ChunkDue::kSurplus) return;
  account->Release(kChunkBytes, tier);
  chunks->GaveBack();
}

// The same for those who can free nothing: what nobody paid counts against the next request.
[[gnu::noinline]] void EndCharge(Account* account, ChunkTable* chunks, ChunkDue due, Tier tier) {
  GiveBack(account, chunks, due, tier);
  if (due == ChunkDue::kUnpaid) account->Book(kChunkBytes, tier);
}

}  // namespace

PieceGrant::PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind,
                       uint64_t bytes, Tier tier)
    : asked_{account, chunks, HeapOf(context, kind), bytes, tier} {
  if (!IsSmall(bytes)) {
    stage_ = account->Reserve(RoundUp(bytes, kChunkBytes), tier) ? Stage::kWhole : Stage::kRefused;
  } else if (chunks->Rely(asked_.heap, bytes)) [[likely]] {
    stage_ = Stage::kUnpaid;  // a hole that is known costs nothing
  } else {
    stage_ = Pay(asked_);
  }
}

// A chunk is charged, which goes back when it turns out that the driver had a hole. What costs
// driver calls of ours comes last.
PieceGrant::Stage PieceGrant::Pay(Asked asked) {
  Stage stage = Stage::kRefused;
  Room room = PayOnce(asked, &Account::TryReserve, &stage);
  for (int turn = 0; turn < kWaits && room == Room::kMaybe; ++turn) {
    Wait(turn);
    room = AskOnce(asked, &Account::TryReserve, &stage);
  }
  if (stage == Stage::kRefused) AskOnce(asked, &Account::Reserve, &stage);
  return stage;
}

ChunkTable::Room PieceGrant::AskOnce(const Asked& asked, Reserve reserve, Stage* stage) {
  *stage = Stage::kUnpaid;
  if (asked.chunks->Rely(asked.heap, asked.bytes)) return Room::kHole;
  return PayOnce(asked, reserve, stage);
}

// After Rely, which found no hole.
ChunkTable::Room PieceGrant::PayOnce(const Asked& asked, Reserve reserve, Stage* stage) {
  if ((asked.account->*reserve)(kChunkBytes, asked.tier)) {
    asked.chunks->Paid();
    *stage = Stage::kPaid;
    return Room::kHole;
  }
  const Room room = asked.chunks->NotPaid(asked.heap, asked.bytes);
  *stage = room == Room::kHole ? Stage::kUnpaid : Stage::kRefused;
  return room;
}

bool PieceGrant::Placed(uint64_t address) {
  if (stage_ == Stage::kUnpaid || stage_ == Stage::kPaid) {
    address_ = address;
    const ChunkDue due = asked_.chunks->Placed({asked_.heap, address, asked_.bytes},
                                               /*paid=*/stage_ == Stage::kPaid);
    if (due != ChunkDue::kNothing) [[unlikely]] {
      stage_ = Settle(asked_, due, address);
      return stage_ == Stage::kPlaced;
    }
  }
  stage_ = Stage::kPlaced;
  return true;
}

PieceGrant::Stage PieceGrant::Settle(Asked asked, ChunkDue due, uint64_t address) {
  GiveBack(asked.account, asked.chunks, due, asked.tier);
  if (due != ChunkDue::kUnpaid || asked.account->TryReserve(kChunkBytes, asked.tier)) {
    return Stage::kPlaced;
  }
  SmallPiece undone;
  asked.chunks->Leave(address, &undone);
  return Stage::kUndone;
}

void PieceGrant::GiveUp(Asked asked, uint64_t address, Stage stage) {
  switch (stage) {
    case Stage::kRefused:
    case Stage::kPlaced:
      return;
    case Stage::kWhole:
      asked.account->Release(RoundUp(asked.bytes, kChunkBytes), asked.tier);
      return;
    case Stage::kUnpaid:
    case Stage::kPaid:
      EndCharge(asked.account, asked.chunks, asked.chunks->Failed(stage == Stage::kPaid),
                asked.tier);
      return;
    case Stage::kUndone:
      // Its chunk was never paid, and somebody else's piece may lie in it by now.
      asked.account->Book(kChunkBytes, asked.tier);
      EndPiece(asked.account, asked.chunks, {asked.heap, address, asked.bytes}, asked.tier);
      return;
  }
}

void KeepSmallPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  EndCharge(account, chunks, chunks->Stay(piece), tier);
}

void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  const ChunkDue due = chunks->Left(piece.address);
  if (due != ChunkDue::kNothing) [[unlikely]]
    EndCharge(account, chunks, due, tier);
}

}  // namespace gpufence
