#include "hooks/contexts/overhead.h"

#include <algorithm>

#include "base/futex.h"
#include "real.h"

namespace gpufence {

namespace {

// Never wiped: a forked child goes on counting, so that its threads share no cell either.
constinit std::atomic<uint32_t> moves_cells_claimed{0};

// What the driver's figure for this process is compared with.
uint64_t ListedBytes(FencedDevice* device) {
  const uint64_t unlisted_bytes = device->unlisted_bytes.load();
  const uint64_t charged_bytes = device->account.charged_bytes();
  return charged_bytes > unlisted_bytes ? charged_bytes - unlisted_bytes : 0;
}

// Free memory tells about neighbours, too, so it is asked for only where the process list is
// silent.
Look LookAt(FencedDevice* device, bool has_context, NumberLesson* lesson = nullptr) {
  const Uncancelled during;
  Look look = {};
  look.moves = device->moves.Read();
  look.source = OwnUsage(device->uuid, has_context, &look.used_bytes, lesson);
  if (has_context) device->listed.store(look.source != UsageSource::kNone);
  if (look.source == UsageSource::kNone || !has_context) {
    look.knows_free = DeviceFreeBytes(device->uuid, &look.free_bytes);
    if (!look.knows_free && CurrentDevice() == static_cast<uint32_t>(device->ordinal)) {
      look.free_bytes = DriverFreeBytes();
      look.knows_free = look.free_bytes != 0;
    }
  }
  look.charged_bytes = ListedBytes(device);
  return look;
}

int64_t Difference(uint64_t from, uint64_t to) { return static_cast<int64_t>(to - from); }

constexpr int kLooks = 3;

// Code of the functions that were looked up and variables of small libraries, together.
constexpr uint64_t kMostUnreadBytes = uint64_t{32} << 20;

}  // namespace

uint32_t ClaimMovesCell() {
  uint32_t claimed = moves_cells_claimed.load(std::memory_order_relaxed);
  while (claimed < Moves::kCells - 1 && !moves_cells_claimed.compare_exchange_weak(
                                            claimed, claimed + 1, std::memory_order_relaxed)) {
  }
  this_thread.moves_cell = claimed + 1;
  return this_thread.moves_cell;
}

// The driver is asked as well: its own libraries may retain the primary context behind our back.
bool HasContext(FencedDevice* device) {
  unsigned int flags = 0;
  int active = 0;
  return device->contexts.load(std::memory_order_relaxed) > 0 ||
         (real::cuDevicePrimaryCtxGetState(device->ordinal, &flags, &active) == CUDA_SUCCESS &&
          active != 0);
}

// Nobody lists a process without a context, and yet it may hold physical memory, which needs none:
// then it holds what it is charged, and the context made next is not taken for as much more.
Change::Change(FencedDevice* device, uint64_t reserved_bytes) : device_(device), before_{} {
  if (device == nullptr) return;
  SettleFreed(DecidedFence());
  const bool has_context = HasContext(device);
  before_ = LookAt(device, has_context);
  if (!has_context) before_.used_bytes = before_.charged_bytes - reserved_bytes;
}

// A free that the driver has not seen to yet may have gone within the call, charged still: it would
// hide as many bytes. What is ours to free later goes with a move of ours, which is noticed. What
// pools gave back within the call is given back here, too, first.
bool Change::Measure(bool has_context, int64_t* bytes, NumberLesson* lesson) const {
  if (device_->moves.Read() != before_.moves) return false;
  SettleFreed(DecidedFence());
  if (DecidedFence()->late_frees.of_driver.load() != 0) return false;
  const Look after = LookAt(device_, has_context || HasContext(device_), lesson);
  // Asked last: a move that began during the look may show in one of its figures alone.
  const uint64_t moves = device_->moves.Read();
  if (moves != after.moves || Moves::UnderWay(moves) != this_thread.moves) return false;
  int64_t grown = 0;
  if (before_.source != UsageSource::kNone && after.source != UsageSource::kNone) {
    grown = Difference(before_.used_bytes, after.used_bytes);
  } else if (before_.knows_free && after.knows_free) {
    grown = Difference(after.free_bytes, before_.free_bytes);
  } else {
    return false;
  }
  *bytes = grown - Difference(before_.charged_bytes, after.charged_bytes);
  return true;
}

Growth::Growth(FencedDevice* device, uint64_t foreseen_bytes, uint64_t charged_bytes)
    : device_(device),
      foreseen_bytes_(foreseen_bytes),
      charged_bytes_(charged_bytes),
      granted_(true),
      change_(nullptr, 0) {
  if (device == nullptr) return;
  // A move also when nothing is foreseen: what it takes is not counted until it is settled.
  move_.Begin(&device->moves);
  granted_ = foreseen_bytes == 0 || device->account.Reserve(foreseen_bytes);
  if (!granted_) {
    move_.End();
    return;
  }
  move_.Granted();
  change_ = Change(device, foreseen_bytes);
}

Growth::~Growth() {
  if (device_ != nullptr && granted_ && !settled_) device_->account.Release(foreseen_bytes_);
}

bool Growth::Settle() {
  if (device_ == nullptr) return true;
  settled_ = true;
  int64_t grown = static_cast<int64_t>(foreseen_bytes_);
  const bool measured = change_.Measure(/*has_context=*/false, &grown);
  if (measured && grown > 0) {
    const auto charged = static_cast<int64_t>(charged_bytes_);
    grown = grown > charged ? grown - charged : 0;
  }
  if (measured && grown < 0 && device_->listed.load(std::memory_order_relaxed)) {
    // Others gave something back meanwhile, and everybody who measures sees all of it: so the
    // difference might be subtracted twice. What is held in all cannot.
    device_->account.LooseOverhead(foreseen_bytes_, 0);
    move_.End();
    ReadOverheadNow(device_);
    return true;
  }
  device_->account.LooseOverhead(foreseen_bytes_, grown);
  if (measured && grown <= static_cast<int64_t>(foreseen_bytes_)) return true;
  if (!measured) {
    // Other threads moved memory meanwhile: raise the figure now, look again when near the limit.
    ReadOverheadNow(device_);
    OverheadChanged(device_);
  }
  return device_->account.IsWithinLimit();
}

uint64_t FreeAndCharged(FencedDevice* device) {
  const uint64_t free_bytes = DriverFreeBytes();
  return free_bytes != 0 ? free_bytes + device->account.UsedBytes() : 0;
}

bool HasGrownUnread(FencedDevice* device, uint64_t before_bytes) {
  const uint64_t sum_bytes = FreeAndCharged(device);
  if (sum_bytes == 0) return true;
  const uint64_t highest_bytes = device->unread.HighestWith(sum_bytes);
  return sum_bytes + kMostUnreadBytes <= std::max(highest_bytes, before_bytes);
}

void ReadIfGrownUnread(FencedDevice* device) {
  if (HasGrownUnread(device, 0)) ReadOverheadNow(device);
}

void OverheadChanged(FencedDevice* device) { device->account.MarkStale(); }

// Lowers the figure only after a look during which nobody moved memory or booked overhead:
// otherwise bytes that are charged and not held would hide as many bytes of overhead. So what the
// driver let go of unseen, the memory of pools, is given back first. The same
// holds for managed memory, which is charged before it is touched, and for plain memory freed in
// the order of a stream, which goes before anybody here hears of it.
void ReadOverheadNow(FencedDevice* device) {
  SettleFreed(DecidedFence());
  Account* account = &device->account;
  account->ClearStale();  // first: what grows from here on sets it again
  device->unread.Forget();
  uint64_t least = UINT64_MAX;
  Account::OverheadMoment least_before = {};
  for (int i = 0; i < kLooks; ++i) {
    const Account::OverheadMoment before = account->overhead_moment();
    const uint64_t charged_before = ListedBytes(device);
    const Look look = LookAt(device, HasContext(device));
    if (look.source == UsageSource::kNone) return;
    const uint64_t charged =
        charged_before > look.charged_bytes ? charged_before : look.charged_bytes;
    const uint64_t overhead = look.used_bytes > charged ? look.used_bytes - charged : 0;
    if (overhead < least) {
      least = overhead;
      least_before = before;
    }
    const bool has_managed = device->moves.ManagedBytes() != 0;
    const bool is_quiet =
        look.moves == device->moves.Read() && Moves::UnderWay(look.moves) == this_thread.asking;
    if (!is_quiet) continue;
    if (has_managed) {
      if (account->RaiseOverhead(overhead, before)) return;
      continue;
    }
    if (DecidedFence()->late_frees.of_driver.load() != 0) continue;
    if (account->SetOverhead(overhead, before)) return;
  }
  account->RaiseOverhead(least, least_before);
  account->MarkStale();  // what was about to move may hide more
}

}  // namespace gpufence
