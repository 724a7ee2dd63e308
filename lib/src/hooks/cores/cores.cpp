// Launches, waits, and what ends: what cores.h declares of them.
#include "hooks/cores/cores.h"

#include <algorithm>
#include <initializer_list>

#include "base/futex.h"
#include "base/log.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/ids.h"
#include "device/markers/looks.h"
#include "device/markers/markers.h"
#include "hooks/cores/core_pace.h"
#include "hooks/fence.h"
#include "hooks/graphs/capture.h"
#include "real.h"

namespace gpufence {

// ---- launches ----

// Before a launch: memory for the fills in front of markers (device/markers/markers.h) for the
// stream's context, got as the program would, so that it is charged and ends with the context.
// Holds no lock.
[[gnu::cold, gnu::noinline]] static void FindFilled(Cores* cores, const MarkedStream& stream) {
  constexpr size_t kBytes = 4;
  Markers* markers = &cores->markers;
  const MarkedContext& context = markers->streams.ContextOf(stream);
  const ContextScope scope(
      reinterpret_cast<CUcontext>(context.handle.load(std::memory_order_relaxed)));
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  CUdeviceptr filled = 0;
  const bool found = scope && cuMemAlloc_v2(&filled, kBytes) == CUDA_SUCCESS;
  GiveFilled(markers, stream, found ? filled : 0);
}

// As far as the last look told. What freezes is a word of its own: whoever lets a launch go opens
// the gate, perhaps after somebody else saw the container frozen.
static bool IsGateOpen(const CoreDevice& device) {
  return device.closed.load(std::memory_order_acquire) == 0 &&
         device.frozen.load(std::memory_order_relaxed) == 0 && device.seat.HasTurn();
}

void CoreLaunch::Enter(Cores* cores, CUstream handle) {
  // Before the stream is known: it may be asked for its flags then, which ends a capture in it.
  if (MayCapture() && MayBeCapturing(handle)) [[unlikely]]
    return;
  stream_ = cores->markers.streams.For(handle);
  CoreDevice* device = DeviceAt(cores, stream_ != nullptr ? stream_->ordinal : CurrentDevice());
  if (device == nullptr) return;
  cores_ = cores;
  device_ = device;
  handle_ = handle;
  unmarked_since_ns_ = 0;
  begins_run_ = false;
  // Most launches go into a stream that runs, through an open gate.
  constexpr uint32_t kBits = ~(MarkedStream::kLife | MarkedStream::kLaunches);
  word_ = stream_ != nullptr ? stream_->word.load(std::memory_order_acquire) : 0;
  const bool goes_on = (word_ & kBits) == MarkedStream::kRunning && IsGateOpen(*device);
  if (!goes_on) [[unlikely]]
    EnterAnew();
}

void CoreLaunch::EnterAnew() {
  if (StreamsGuard::is_inside()) {  // a callback on a call of ours
    device_ = nullptr;
    return;
  }
  using Stream = MarkedStream;
  bool may_go = false;
  if (stream_ != nullptr) {
    const uint32_t word = stream_->word.load(std::memory_order_acquire);
    const uint32_t bits = word & ~(Stream::kLife | Stream::kLaunches);
    word_ = Stream::kRunning | (word & Stream::kLife);
    const bool goes_on = (bits & Stream::kSparse) == 0 ||
                         !CameToIdle(&cores_->markers, stream_, handle_, MayCapture());
    may_go = (bits & ~(Stream::kRunning | Stream::kSparse)) == 0 && IsGateOpen(*device_);
    if (may_go && goes_on && (bits & Stream::kRunning) != 0) return;
  }
  EnterSlowly(may_go);
}

// Now, where the last look tells enough: of one of many short runs that are waited for. Else 0.
uint64_t CoreLaunch::UnaskedNs() {
  if (!stream_->by_host.load(std::memory_order_relaxed) ||
      !cores_->markers.streams.IsActive(stream_)) {
    return 0;
  }
  const uint64_t now_ns = NowNs();
  return device_->seat.AheadNs(now_ns) <= kTuning.even_ns ? now_ns : 0;
}

// `may_go`: as far as the last look told.
[[gnu::noinline]] void CoreLaunch::EnterSlowly(bool may_go) {
  if (!SoughtPauses(*device_)) [[unlikely]]
    FindKeptPauses(cores_, device_);
  if (stream_ != nullptr && device_->LogsLaunches() && cores_->yielder.runs()) [[unlikely]]
    FindYieldWords(cores_, *stream_);
  const HeldNs unasked = {0, 0, may_go ? UnaskedNs() : 0, false};
  const HeldNs held = unasked.unasked_ns != 0 ? unasked : Hold(cores_, device_, stream_);
  if (stream_ != nullptr && device_->seat.has_slices() && LacksFilled(cores_->markers, *stream_))
      [[unlikely]] {
    FindFilled(cores_, *stream_);
  }
  // Not between the markers that this launch may have around it.
  if (device_->LogsLaunches()) [[unlikely]]
    PutYieldPoint(/*known=*/0);
  begins_run_ = Begin(held);
  if (begins_run_) return;
  // Nobody tells when the GPU goes on there, and standing would be charged.
  if (held.on_gpu) OpenHold(cores_, device_, NowNs());
  unmarked_since_ns_ = NowNs();
}

// Of the stream that the handle is of now. False when it cannot be marked; then it is null.
// `launches`: so many were counted in the stream, and are counted again where that is another one;
// so many are `uncounted`.
bool CoreLaunch::Begin(HeldNs held, uint32_t launches, uint32_t uncounted) {
  while (stream_ != nullptr && !cores_->watcher.stopping()) {
    const uint32_t life = stream_->word.load(std::memory_order_acquire) & MarkedStream::kLife;
    const Begun begun = BeginRun(&cores_->markers, stream_, handle_, held, MayCapture(), uncounted);
    word_ = MarkedStream::kRunning | life;
    if (begun == Begun::kYes) {
      cores_->watcher.Wake(cores_);
      if (device_->LogsLaunches()) cores_->yielder.Wake();
      if (stream_->mean_ns.load(std::memory_order_relaxed) >= kTuning.brief_launch_ns) TellBegin();
      return true;
    }
    if (begun == Begun::kMustAsk) {
      held = Hold(cores_, device_, stream_);
      continue;
    }
    stream_ = begun == Begun::kOtherStream ? cores_->markers.streams.For(handle_) : nullptr;
    uncounted = launches;
  }
  return cores_->watcher.stopping();
}

// To those of lower priority, who launch until they hear of it: the watcher may sleep until its
// next look. Behind shorter launches the GPU waits for the host, and they have it meanwhile.
void CoreLaunch::TellBegin() {
  const uint64_t now_ns = NowNs();
  if (device_->seat.HasInferior(now_ns)) device_->seat.TellInferiors(now_ns);
}

// What cannot be marked is waited for, which is slow and right.
[[gnu::noinline]] static void MeasureByWaiting(CoreDevice* device, CUstream stream,
                                               uint64_t since_ns) {
  static constinit std::atomic<bool> said{false};
  const CUresult rc = real::cuStreamSynchronize(stream);
  // Of a launch that failed, or a context that died, there is nothing to say.
  if (rc == CUDA_SUCCESS && !said.exchange(true, std::memory_order_relaxed)) {
    GPUFENCE_LOG(
        kWarn,
        "GPU time of a stream cannot be measured by events (too many streams or contexts, or "
        "the driver refuses them): each launch there waits until it has ended, so that the core "
        "limit holds. Use fewer streams or contexts");
  }
  const uint64_t now_ns = NowNs();
  device->seat.Charge(since_ns, now_ns, now_ns);
  device->closed.store(1, std::memory_order_release);
}

// What is more than counting; false: there is no stream to count in.
bool CoreLaunch::TellFirst() {
  if (stream_ == nullptr) {
    if (unmarked_since_ns_ != 0) MeasureByWaiting(device_, handle_, unmarked_since_ns_);
    return false;
  }
  if (begins_run_ && !cores_->markers.CallsBlock() &&
      stream_->launched_ns.load(std::memory_order_relaxed) == 0) {
    stream_->launched_ns.store(NowNs(), std::memory_order_relaxed);
  }
  return true;
}

void CoreLaunch::Launched() {
  if (stream_ == nullptr || begins_run_) [[unlikely]] {
    if (!TellFirst()) return;
  }
  using Stream = MarkedStream;
  const uint32_t before = stream_->word.fetch_add(1, std::memory_order_acq_rel);
  constexpr uint32_t kBits = Stream::kRunning | Stream::kSparse | Stream::kLife;
  const bool is_usual = ((before ^ word_) & kBits) == 0;
  const uint32_t launches = (before & Stream::kLaunches) + 1;
  if (!is_usual || launches >= stream_->mark_at.load(std::memory_order_relaxed)) [[unlikely]] {
    Follow(before);
  }
}

// `before`: the stream's word without this launch.
void CoreLaunch::Follow(uint32_t before) {
  if (StreamsGuard::is_inside()) return;  // as EnterAnew
  // Seen idle while it was being launched into, since this thread had to wait for a processor; or
  // its place was given to another stream meanwhile, in which this launch was counted.
  const bool is_other = ((before ^ word_) & MarkedStream::kLife) != 0;
  if (is_other) stream_->Uncount(before);
  if (is_other || (before & MarkedStream::kRunning) == 0) {
    if (cores_->watcher.stopping()) return;
    if (is_other) stream_ = cores_->markers.streams.For(handle_);
    const uint64_t now_ns = NowNs();
    const uint32_t uncounted = is_other ? 1 : 0;
    if (!Begin({}, /*launches=*/1, uncounted)) MeasureByWaiting(device_, handle_, now_ns);
    device_->seat.Beat(now_ns, /*outstanding=*/true);
    return;
  }
  const bool marks_it = (before & MarkedStream::kSparse) != 0 &&
                        stream_->marks_each.load(std::memory_order_relaxed) &&
                        !stream_->by_host.load(std::memory_order_relaxed);
  if (!marks_it &&
      (before & MarkedStream::kLaunches) + 1 < stream_->mark_at.load(std::memory_order_relaxed)) {
    return;
  }
  MarkInTurn(&cores_->markers, stream_);
  if (HoldOf(cores_, device_, stream_, NowNs()).most_ns() != 0) {
    stream_->word.fetch_or(MarkedStream::kHeld, std::memory_order_relaxed);
  }
  TickHere(cores_);
}

// ---- what is no launch ----

static void LeaveUnlessAmongThem(CUstream stream, bool is_kernel) {
  Cores* cores = ActiveCores();
  if (cores == nullptr) return;
  MarkedStream* known = cores->markers.streams.Find(stream);
  const CoreDevice* device = known != nullptr ? DeviceAt(cores, known->ordinal) : nullptr;
  const bool goes_on = device != nullptr &&
                       (device->LogsLaunches() || GoesOnWith(&cores->markers, known, is_kernel));
  if (!goes_on) LeaveKernels(cores, known, stream);
}

void LeaveKernelsToFill(CUstream stream) { LeaveUnlessAmongThem(stream, /*is_kernel=*/true); }

void LeaveKernelsToCopy(CUstream stream) {
  const Fence* fence = DecidedFence();
  const bool is_within = fence != nullptr && fence->device_count == 1;
  return is_within ? LeaveUnlessAmongThem(stream, /*is_kernel=*/false) : LeaveKernels(stream);
}

// ---- waits ----

// To those that meet others: the program waits for its work, and whoever goes last may go at once.
// A stream that was waited for may seem active until somebody looks.
static void TellWait(Cores* cores, const MarkedStream* stream, bool ended, uint64_t now_ns) {
  CoreDevice* device = DeviceAt(cores, stream->ordinal);
  if (device == nullptr || !device->seat.shares_device()) return;
  const uint32_t own = cores->markers.streams.IsActive(stream) ? 1 : 0;
  const uint32_t active = cores->markers.streams.CountActive(stream->ordinal);
  const bool is_last = ended && active <= own;
  if (is_last) {
    device->waited_stream.store(stream, std::memory_order_relaxed);
    device->waited_launches.store(stream->QueuedLaunches(), std::memory_order_relaxed);
    device->seat.NoteWait(now_ns);
  }
  const bool is_over = active == 0 || (is_last && device->seat.CameBack(now_ns));
  if (is_over && device->seat.HasInferior(now_ns)) cores->watcher.LookNow();
}

void CoreWait::Waited(bool ended) {
  BusyIntervals<kMostWaitedIntervals> busy;
  const uint64_t now_ns = NowNs();
  AfterWait(&cores_->markers, stream_, handle_, launches_, ended, now_ns, &busy);
  ChargeTold(cores_, stream_, &busy, now_ns);
  TellWait(cores_, stream_, ended, now_ns);
}

void TellAnswer(CUstream stream, bool ended) {
  Cores* cores = ActiveCores();
  MarkedStream* known = cores != nullptr ? cores->markers.streams.Find(stream) : nullptr;
  if (known == nullptr) return;
  BusyIntervals<kMostWaitedIntervals> busy;
  AfterAnswer(&cores->markers, known, ended, &busy);
  if (!busy.empty()) ChargeTold(cores, known, &busy, NowNs());
}

// ---- streams and contexts ----

void EndCoreStream(Cores* cores, CUstream stream) {
  MarkedStream* known = cores->markers.streams.Find(stream);
  CoreDevice* device = known != nullptr ? DeviceAt(cores, known->ordinal) : nullptr;
  uint64_t since_ns = 0;
  const Forgotten how = ForgetStream(&cores->markers, stream, &since_ns);
  if (how == Forgotten::kMarked || device == nullptr) return;
  if (how == Forgotten::kUnmarked) return MeasureByWaiting(device, stream, since_ns);
  const uint64_t now_ns = NowNs();
  device->seat.Charge(since_ns, now_ns, now_ns);
  device->closed.store(1, std::memory_order_release);
}

CoreContextEnd::CoreContextEnd(CUcontext context, CUdevice ordinal) : cores_(ActiveCores()) {
  if (cores_ == nullptr) return;
  suspended_ = SuspendContexts(&cores_->markers, context, static_cast<uint32_t>(ordinal));
}

void CoreContextEnd::Settle(bool ended) {
  if (cores_ == nullptr) return;
  BusyIntervals<kMostIntervals> busy;
  const uint64_t now_ns = NowNs();
  ResumeContexts(&cores_->markers, suspended_, ended, now_ns, &busy);
  ChargeAll(cores_, &busy, now_ns);
  cores_ = nullptr;
}

// ---- graphs that have kernels on other devices than their stream's ----

namespace {

// Until it has nothing left, or for as long as one would be patient with kernels: it may wait for
// what the host does behind this very launch.
void AwaitStream(CUstream stream, uint64_t since_ns) {
  constexpr uint64_t kNapNs = 50'000;
  while (real::cuStreamQuery(stream) == CUDA_ERROR_NOT_READY &&
         NowNs() < since_ns + kTuning.patience_ns) {
    Nap(kNapNs);
  }
}

}  // namespace

void CoreElsewhere::Enter(uint64_t ordinals, CUstream stream) {
  Cores* cores = ordinals != 0 ? LaunchCores() : nullptr;
  if (cores == nullptr || (MayCapture() && MayBeCapturing(stream))) return;
  const MarkedStream* known = cores->markers.streams.For(stream);
  const uint32_t own = known != nullptr ? known->ordinal : CurrentDevice();
  for (; ordinals != 0; ordinals &= ordinals - 1) {
    const auto ordinal = static_cast<uint32_t>(__builtin_ctzll(ordinals));
    CoreDevice* device = ordinal != own ? DeviceAt(cores, ordinal) : nullptr;
    if (device == nullptr) continue;
    Hold(cores, device, nullptr);
    ordinals_ |= uint64_t{1} << ordinal;
  }
  if (ordinals_ == 0) return;
  const CaptureRelaxed relaxed;  // other streams may capture
  cores_ = cores;
  stream_ = stream;
  begin_ = Mark();
  since_ns_ = NowNs();
}

// A timing event in the stream, whose context need not be the current one; null: none to be had.
CUevent CoreElsewhere::Mark() {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  if (real::cuStreamGetCtx(stream_, &context) != CUDA_SUCCESS) return nullptr;
  const ContextScope scope(context);
  if (!scope || real::cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return nullptr;
  if (real::cuEventRecord(event, stream_) == CUDA_SUCCESS) return event;
  real::cuEventDestroy_v2(event);
  return nullptr;
}

// By the GPU's clock, since this thread may wait for a processor; by the host's where that fails.
uint64_t CoreElsewhere::RanNs(CUevent end) {
  const uint64_t waited_ns = NowNs() - since_ns_;
  float ms = 0;
  const bool known = begin_ != nullptr && end != nullptr &&
                     real::cuEventElapsedTime(&ms, begin_, end) == CUDA_SUCCESS;
  for (const CUevent event : {begin_, end}) {
    if (event != nullptr) real::cuEventDestroy_v2(event);
  }
  return known ? std::min(waited_ns, static_cast<uint64_t>(static_cast<double>(ms) * 1e6))
               : waited_ns;
}

void CoreElsewhere::WaitAndCharge() {
  GPUFENCE_LOG(
      kInfo,
      "a CUDA graph has kernels on several GPUs: each launch of it waits until it has ended, "
      "so that the core limit holds on each GPU");
  const CaptureRelaxed relaxed;
  const CUevent end = Mark();
  AwaitStream(stream_, since_ns_);
  const uint64_t ran_ns = RanNs(end);
  const uint64_t now_ns = NowNs();
  for (; ordinals_ != 0; ordinals_ &= ordinals_ - 1) {
    CoreDevice* device = DeviceAt(cores_, static_cast<uint32_t>(__builtin_ctzll(ordinals_)));
    if (device == nullptr) continue;
    device->seat.Charge(now_ns - ran_ns, now_ns, now_ns);
    device->closed.store(1, std::memory_order_release);
  }
}

}  // namespace gpufence
