#include "hooks/contexts/overhead.h"

#include <algorithm>
#include <atomic>

#include "base/futex.h"
#include "hooks/contexts/context_cost.h"
#include "policy/gang.h"
#include "real.h"

namespace gpufence {
namespace {

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
  GiveBackFreed(DecidedFence());
  const bool has_context = HasContext(device);
  before_ = LookAt(device, has_context);
  if (!has_context) before_.used_bytes = before_.charged_bytes - reserved_bytes;
}

// A free that the driver has not seen to yet may have gone within the call, charged still: it would
// hide as many bytes. What is ours to free later goes with a move of ours, which is noticed. What
// pools gave back within the call is given back here, too, first.
bool Change::Measure(bool has_context, int64_t* bytes, NumberLesson* lesson) const {
  if (device_->moves.Read() != before_.moves) return false;
  GiveBackFreed(DecidedFence());
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
  GiveBackFreed(DecidedFence());
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

// ---- first launches ----

namespace {

constexpr size_t kPlaces = 4096;

// Not wiped on fork: a child of a process that launched anything cannot use the driver.
constinit std::atomic<uint64_t> seen[kPlaces] = {};
constinit std::atomic<bool> contexts_differ{false};

std::atomic<uint64_t>& PlaceOf(uint64_t key) { return seen[(key * 0x9e3779b97f4a7c15u) >> 52]; }
static_assert(kPlaces == size_t{1} << (64 - 52));

// Handles are even: the lowest bit tells what was done with one. No address has the highest.
enum Done : uint64_t { kLaunched = 0, kLookedUp = 1 };
constexpr uint64_t kIsCollective = uint64_t{1} << 63;

[[gnu::noinline]] uint64_t InContext(uint64_t key) {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return key;
  // Into the bits that addresses leave free.
  return key ^ (reinterpret_cast<uint64_t>(context) << 24);
}

uint64_t KeyOf(const void* handle, Done done) {
  const uint64_t key = reinterpret_cast<uint64_t>(handle) | done;
  return contexts_differ.load(std::memory_order_relaxed) ? InContext(key) : key;
}

bool WasSeen(uint64_t key) { return PlaceOf(key).load(std::memory_order_relaxed) == key; }

void Remember(uint64_t key) { PlaceOf(key).store(key, std::memory_order_relaxed); }

uint64_t Attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  const CUresult rc = real::cuDeviceGetAttribute(&value, attribute, device);
  return rc == CUDA_SUCCESS && value > 0 ? static_cast<uint64_t>(value) : 0;
}

uint64_t MostThreads(CUdevice device) {
  return Attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
         Attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
}

}  // namespace

Launched WasLaunched(CUfunction function) {
  const uint64_t key = KeyOf(function, kLaunched);
  const uint64_t known = PlaceOf(key).load(std::memory_order_relaxed);
  if (known == key) [[likely]]
    return Launched::kBefore;
  return known == (key ^ kIsCollective) ? Launched::kCollective : Launched::kNever;
}

void RememberLaunch(CUfunction function, bool is_collective) {
  const uint64_t key = KeyOf(function, kLaunched);
  PlaceOf(key).store(is_collective ? key ^ kIsCollective : key, std::memory_order_relaxed);
}

bool IsCollective(CUfunction function) {
  const Launched known = WasLaunched(function);
  if (known != Launched::kNever) return known == Launched::kCollective;
  const char* name = nullptr;
  if (real::cuFuncGetName(&name, function) != CUDA_SUCCESS &&
      real::cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) != CUDA_SUCCESS) {
    return false;
  }
  return name != nullptr && IsCollectiveName(name);
}

bool WasLookedUp(const void* handle) { return WasSeen(KeyOf(handle, kLookedUp)); }
void RememberLookUp(const void* handle) { Remember(KeyOf(handle, kLookedUp)); }

void TellContextsApart() { contexts_differ.store(true, std::memory_order_relaxed); }

void ForgetLaunches() {
  for (std::atomic<uint64_t>& place : seen) {
    if (place.load(std::memory_order_relaxed) != 0) place.store(0, std::memory_order_relaxed);
  }
}

uint64_t StackGrowthBytes(Fence* fence, FencedDevice* device, uint64_t context,
                          uint64_t stack_bytes) {
  if (stack_bytes == 0) return 0;
  size_t limit = 0;
  if (real::cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE) != CUDA_SUCCESS) limit = 0;
  const uint64_t launched_stack = LaunchedStack(fence, context);
  const uint64_t stack_now = limit > launched_stack ? limit : launched_stack;
  if (stack_bytes <= stack_now) return 0;
  return (stack_bytes - stack_now) * MostThreads(device->ordinal);
}

uint64_t StackOf(CUfunction function) {
  int bytes = 0;
  const CUresult rc =
      real::cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  return rc == CUDA_SUCCESS && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

}  // namespace gpufence
