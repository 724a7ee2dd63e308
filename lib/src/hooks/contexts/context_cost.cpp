#include "hooks/contexts/context_cost.h"

#include <algorithm>
#include <atomic>

#include "base/futex.h"
#include "device/context_scope.h"
#include "hooks/charges.h"
#include "hooks/contexts/overhead.h"
#include "hooks/fence.h"
#include "hooks/graphs/executables.h"
#include "hooks/pools/pools.h"
#include "real.h"

namespace gpufence {
namespace {

// More than any context measured so far (543 MB on an H200 with driver 580); reserved while nobody
// in this container has measured one.
constexpr uint64_t kUnknownContextBytes = uint64_t{640} << 20;

// While the container's first context is being made, others that do not fit by that guess wait for
// its figure: it takes about 100 ms.
constexpr int kWaits = 400;
constexpr uint64_t kWaitNs = 1'000'000;

DeviceRow& RowOf(FencedDevice* device) {
  return device->account.file().region->rows[device->account.row()];
}

uint64_t KnownCost(FencedDevice* device) {
  return RowOf(device).context_bytes.load(std::memory_order_relaxed);
}

// All that is not free on the device bounds what a new context can have taken, when neither the
// process list nor a figure from before the call is to be had.
uint64_t BoundedGuess(CUcontext made) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const ContextScope scope(made);
  if (!scope || real::cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
    return kUnknownContextBytes;
  }
  return std::min(total_bytes - free_bytes, kUnknownContextBytes);
}

// Bookings of contexts are numbered, since handles are dealt again.
constinit std::atomic<uint64_t> last_booking{0};

void EndContents(Fence* fence, uint64_t context) {
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    FencedDevice* device = &fence->devices[i];
    device->moves.ContextEnded(device->primary.load(std::memory_order_relaxed) == context);
  }
  fence->holdings.TakeWhere([&](const Holding& holding) { return holding.context == context; },
                            [&](const Holding& holding) { Discharge(fence, holding); });
  Holding piece;
  for (size_t from = 0; TakePieceOf(fence, context, &from, &piece);) Discharge(fence, piece);
}

// Under contexts_lock, so that nothing of the handle's next owner can be among it.
void EndBooking(Fence* fence, const Holding& booked) {
  FencedDevice* device = &fence->devices[booked.device];
  EndContents(fence, booked.key);
  Holding ended;
  if (!fence->holdings.Take(HoldingKind::kContext, booked.key, &ended)) return;
  device->account.ReleaseOverhead(ended.bytes);
  device->contexts.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

NewContext::NewContext(FencedDevice* device) : device_(device), change_(nullptr, 0) {
  if (device == nullptr) return;
  const Uncancelled during;
  move_.Begin(&device->moves);
  for (int waits = 0;; ++waits) {
    reserved_bytes_ = KnownCost(device);
    known_ = reserved_bytes_ != 0;
    if (!known_) reserved_bytes_ = kUnknownContextBytes;
    granted_ = device->account.Reserve(reserved_bytes_);
    // Alone, an unknown cost is tried: it is measured, and undone if it does not fit.
    if (granted_ || known_ || waits == kWaits || device->account.UsedBytes() == 0) break;
    Nap(kWaitNs);
  }
  if (!granted_ && known_) {
    move_.End();
    return;
  }
  if (!granted_) reserved_bytes_ = 0;
  granted_ = true;
  move_.Granted();
  if (!HasContext(device)) lesson_.Begin(device->uuid);
  change_ = Change(device, reserved_bytes_);
}

NewContext::~NewContext() {
  if (device_ != nullptr && granted_ && !settled_) device_->account.Release(reserved_bytes_);
}

uint64_t NewContext::MeasuredBytes(CUcontext made) {
  const Uncancelled during;
  int64_t grown = 0;
  // One list for both: it takes the driver a part of a millisecond.
  const bool measured = change_.Measure(/*has_context=*/true, &grown, &lesson_);
  lesson_.Conclude(device_->uuid);
  // What a context gave back that ended meanwhile would be missing, or this one has ended itself.
  if (measured && grown >= 0 && !move_.SawEnd()) {
    RowOf(device_).context_bytes.store(static_cast<uint64_t>(grown), std::memory_order_relaxed);
    return static_cast<uint64_t>(grown);
  }
  // Somebody moved memory meanwhile: another reading will set right what is left of the difference.
  OverheadChanged(device_);
  return known_ ? reserved_bytes_ : BoundedGuess(made);
}

bool NewContext::Settle(Fence* fence, CUcontext made, uint64_t stale) {
  if (device_ == nullptr) return true;
  const uint64_t bytes = MeasuredBytes(made);
  Account* account = &device_->account;
  if (bytes > reserved_bytes_) {
    const uint64_t missing = bytes - reserved_bytes_;
    if (!account->Reserve(missing)) return false;
    reserved_bytes_ = bytes;
  }
  Holding context = {};
  context.key = reinterpret_cast<uint64_t>(made);
  context.context = last_booking.fetch_add(1, std::memory_order_relaxed) + 1;
  context.kind = HoldingKind::kContext;
  context.bytes = bytes;
  context.count = 1;
  context.device = device_->account.device();
  SpinGuard guard(&device_->contexts_lock);
  Holding present;
  if (fence->holdings.Get(HoldingKind::kContext, context.key, &present)) {
    if (stale != kFreshHandle && present.context != stale) return true;
    EndBooking(fence, present);
  }
  if (!fence->holdings.Put(context)) return true;  // found as loose overhead, later
  settled_ = true;
  if (context.context > 1) TellContextsApart();
  account->OwnOverhead(reserved_bytes_, bytes);
  device_->contexts.fetch_add(1, std::memory_order_relaxed);
  return true;
}

CUresult NewContext::Refused() const {
  const uint64_t known_bytes = KnownCost(device_);
  return OverLimitOfContexts(device_, known_bytes != 0 ? known_bytes : kUnknownContextBytes);
}

uint64_t BookingOf(Fence* fence, uint64_t context) {
  Holding found;
  return fence->holdings.Get(HoldingKind::kContext, context, &found) ? found.context : 0;
}

void ContextEnded(Fence* fence, uint64_t context, uint64_t booking) {
  const PoolChoice choice(fence);  // a device's pool may have gone with its context
  Holding found;
  if (!fence->holdings.Get(HoldingKind::kContext, context, &found)) {
    if (booking != 0) return;
    EndContents(fence, context);
  } else {
    SpinGuard guard(&fence->devices[found.device].contexts_lock);
    // The driver may have dealt the handle again; who got it has ended ours.
    if (!fence->holdings.Get(HoldingKind::kContext, context, &found) || found.context != booking) {
      return;
    }
    EndBooking(fence, found);
  }
  ForgetLateFrees(fence, reinterpret_cast<CUcontext>(context));
  ForgetLaunches();
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    RechargeGraphs(&fence->devices[i]);
    ReadOverheadNow(&fence->devices[i]);
  }
}

bool IsAlive(uint64_t context) {
  unsigned int version = 0;
  return real::cuCtxGetApiVersion(reinterpret_cast<CUcontext>(context), &version) == CUDA_SUCCESS;
}

// Should it be there after all, because somebody made the primary context anew at that moment, the
// next reading of the overhead finds it.
void EndAddressIfGone(FencedDevice* device, uint64_t address) {
  Fence* fence = the_fence.load(std::memory_order_relaxed);
  CUdeviceptr base = 0;
  Holding gone;
  if (real::cuMemGetAddressRange_v2(&base, nullptr, address) == CUDA_SUCCESS && base == address) {
    return;
  }
  if (!TakeAddress(fence, address, &gone)) return;
  Discharge(fence, gone);
  OverheadChanged(device);
}

void EndArrayIfGone(FencedDevice* device, HoldingKind kind, uint64_t key, bool primary_ended) {
  Fence* fence = the_fence.load(std::memory_order_relaxed);
  Holding array;
  if (!fence->holdings.Get(kind, key, &array)) return;
  const bool of_primary = array.context == device->primary.load(std::memory_order_relaxed);
  const bool is_gone = of_primary ? primary_ended : !IsAlive(array.context);
  if (!is_gone || !fence->holdings.Take(kind, key, &array)) return;
  Discharge(fence, array);
  OverheadChanged(device);
}

uint64_t LaunchedStack(Fence* fence, uint64_t context) {
  Holding found;
  return fence->holdings.Get(HoldingKind::kContext, context, &found) ? found.owner : 0;
}

void SetLaunchedStack(Fence* fence, FencedDevice* device, uint64_t context, uint64_t stack_bytes) {
  SpinGuard guard(&device->contexts_lock);
  Holding found;
  if (!fence->holdings.Get(HoldingKind::kContext, context, &found)) return;
  found.owner = stack_bytes;
  fence->holdings.Put(found);
}

}  // namespace gpufence
