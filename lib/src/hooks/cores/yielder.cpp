// Yield points in streams, and the thread that opens and closes them.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/futex.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "real.h"

// See watcher.cpp.
extern "C" {
[[gnu::weak]] int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
[[gnu::weak]] int pthread_detach(pthread_t);
}

namespace gpufence {

// ---- points ----

namespace {

constexpr uint64_t kNoWords = 1;

CUstreamBatchMemOpParams Write(CUdeviceptr address, uint32_t value) {
  CUstreamBatchMemOpParams op = {};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = address;
  op.writeValue.value = value;
  return op;
}

// The GPU writes that it came, waits for leave to go on, and writes that it went.
bool PutPoint(CUstream stream, CUdeviceptr words, uint32_t number) {
  const CUdeviceptr own = words + YieldPoints::BytesTo(number);
  CUstreamBatchMemOpParams wait = {};
  wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = words;
  wait.waitValue.value = YieldPoints::kGoesOn;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CUstreamBatchMemOpParams ops[] = {Write(own, YieldPoints::kCame), wait,
                                    Write(own, YieldPoints::kWent)};
  return real::cuStreamBatchMemOp_v2(stream, 3, ops, 0) == CUDA_SUCCESS;
}

}  // namespace

// Of two threads one finds the memory registered by the other.
void FindYieldWords(Cores* cores, const MarkedStream& stream) {
  MarkedContext& context = cores->markers.streams.ContextOf(stream);
  if (context.yield_words.load(std::memory_order_relaxed) != 0) return;
  const ContextScope scope(
      reinterpret_cast<CUcontext>(context.handle.load(std::memory_order_relaxed)));
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  void* words = cores->markers.yields.GiveWords(stream.context, stream.ordinal);
  CUdeviceptr address = 0;
  if (scope && words != nullptr &&
      real::cuMemHostRegister_v2(words, YieldPoints::kContextBytes, CU_MEMHOSTREGISTER_DEVICEMAP) ==
          CUDA_SUCCESS &&
      real::cuMemHostGetDevicePointer_v2(&address, words, 0) == CUDA_SUCCESS) {
    context.yield_words.store(address, std::memory_order_relaxed);
    return;
  }
  uint64_t unknown = 0;
  context.yield_words.compare_exchange_strong(unknown, kNoWords, std::memory_order_relaxed);
}

CUdeviceptr YieldWordsOf(const Cores& cores, const MarkedStream& stream) {
  const uint64_t words =
      cores.markers.streams.ContextOf(stream).yield_words.load(std::memory_order_relaxed);
  return words > kNoWords ? words : 0;
}

void LoseYieldWords(Cores* cores, const MarkedStream& stream) {
  cores->markers.streams.ContextOf(stream).yield_words.store(kNoWords, std::memory_order_relaxed);
}

bool YieldsOnGpu(const Cores& cores, const CoreDevice& device, const MarkedStream* stream) {
  return stream != nullptr && device.stands.load(std::memory_order_relaxed) != 0 &&
         stream->QueuedLaunches() != 0 && YieldWordsOf(cores, *stream) != 0;
}

// Between what was put into the stream and the launch that comes now: where both are so much work,
// as far as its length is known, and where the GPU yields now and has come to no point that it
// could stand at.
void CoreLaunch::PutYieldPoint(uint32_t known) {
  if (!YieldsOnGpu(*cores_, *device_, stream_)) return;
  Markers* markers = &cores_->markers;
  const uint32_t logged = stream_->log.count();
  const uint32_t behind = logged - known;
  const uint32_t changes = markers->yields.ChangesOf(device_->ordinal);
  const bool yields_now =
      markers->yields.IsClosed(device_->ordinal) && stream_->yields_of != changes;
  const uint64_t since_ns =
      markers->lengths.OfNs(stream_->log, logged, logged - stream_->yields_at, stream_->UsualNs());
  const bool is_far = behind != stream_->yields_at && since_ns >= kTuning.inferior_queue_ns;
  if (!yields_now && !is_far) return;
  stream_->yields_at = behind;
  stream_->yields_of = changes;
  if (!PutPoint(handle_, YieldWordsOf(*cores_, *stream_), markers->streams.NumberOf(stream_))) {
    LoseYieldWords(cores_, *stream_);
  }
}

// ---- the thread ----

void Yielder::Begin(Cores* cores) {
  uint32_t none = kNone;
  if (runs()) return Wake();
  if (state_.load(std::memory_order_relaxed) != kNone ||
      !state_.compare_exchange_strong(none, kFailed, std::memory_order_acq_rel)) {
    return;
  }
  if (pthread_create == nullptr || !cores->markers.yields.Map()) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  state_.store(kRuns, std::memory_order_release);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, Main, cores) != 0) {
    state_.store(kFailed, std::memory_order_release);
  } else if (pthread_detach != nullptr) {
    pthread_detach(thread);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

void* Yielder::Main(void* cores) {
  prctl(PR_SET_NAME, "gpufence-yield");
  prctl(PR_SET_TIMERSLACK, 1'000ul);
  static_cast<Cores*>(cores)->yielder.Run(static_cast<Cores*>(cores));
  return nullptr;
}

namespace {

// Whether all that runs on the device is at a point.
bool AllStand(Cores* cores, uint32_t ordinal) {
  uint32_t standing = 0;
  uint32_t others = 0;
  StreamTable* streams = &cores->markers.streams;
  streams->ForEachActive([&](const MarkedStream* stream) {
    if (stream->ordinal != ordinal || stream->QueuedLaunches() == 0) return;
    const uint32_t number = streams->NumberOf(stream);
    (cores->markers.yields.IsAtPoint(stream->context, number) ? standing : others) += 1;
  });
  return standing != 0 && others == 0;
}

}  // namespace

// Whether anything here may have to yield soon.
bool Yielder::Look(Cores* cores) {
  bool is_here = false;
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    const bool may_yield = device->seat.HasSuperior(NowNs());
    if (may_yield) {
      device->seat.MoveTurn(NowNs());
      is_here |= cores->markers.streams.IsActive(device->ordinal) ||
                 device->turn_waiters.load(std::memory_order_relaxed) != 0;
    }
    const uint64_t now_ns = NowNs();
    const bool may_stand = may_yield && !device->seat.HasHostBoundSuperior(now_ns);
    device->stands.store(may_stand ? 1 : 0, std::memory_order_relaxed);
    if (may_yield && device->seat.Yields(now_ns)) {
      Close(cores, device);
    } else {
      Open(cores, device);
    }
  }
  return is_here;
}

// An empty stream is held by who launches.
void Yielder::Close(Cores* cores, CoreDevice* device) {
  cores->markers.yields.Close(device->ordinal);
  device->closed.store(1, std::memory_order_release);
  StoodTimes* stood = &cores->markers.StoodOf(device->ordinal);
  if (AllStand(cores, device->ordinal)) {
    stood->Begin(NowNs());
  } else {
    stood->End(NowNs());
  }
}

// What stood goes on when the GPU comes to it: beside others in its process's slice.
void Yielder::Open(Cores* cores, CoreDevice* device) {
  if (cores->markers.yields.IsClosed(device->ordinal)) {
    cores->markers.yields.Open(device->ordinal);
    Notify(device);
  }
  StoodTimes* stood = &cores->markers.StoodOf(device->ordinal);
  if (stood->Stands() && !AllStand(cores, device->ordinal)) stood->End(NowNs());
}

// Those of higher priority begin to work without a word to this thread.
uint64_t Yielder::IdleNs(const Cores& cores) {
  const uint32_t devices = cores.count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    if (cores.devices[i].LogsLaunches()) return kTuning.nap_ns;
  }
  return kTuning.most_wait_ns;
}

void Yielder::Run(Cores* cores) {
  while (state_.load(std::memory_order_acquire) == kRuns) {
    asleep_.store(0, std::memory_order_seq_cst);
    OpenHolds(cores, NowNs());
    if (Look(cores)) {
      const uint32_t devices = cores->count.load(std::memory_order_acquire);
      const CoreDevice& device = cores->devices[0];
      const bool is_closed = cores->markers.yields.IsClosed(device.ordinal);
      const bool stands = cores->markers.StoodOf(device.ordinal).Stands();
      if (devices == 1) {
        device.seat.AwaitSuperior(is_closed || stands ? kTuning.close_look_ns : kTuning.soon_ns);
      } else {
        Nap(2 * kTuning.close_look_ns);
      }
      continue;
    }
    asleep_.store(1, std::memory_order_seq_cst);
    // Whoever began something before that store saw it awake.
    const uint64_t hold_ns = OpenHolds(cores, NowNs());
    if (!Look(cores)) FutexWait(&asleep_, 1, std::min(hold_ns, IdleNs(*cores)));
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with who closes a hold point
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    cores->markers.yields.OpenHoldsForGood(cores->devices[i].ordinal);
    Open(cores, &cores->devices[i]);
    cores->markers.StoodOf(cores->devices[i].ordinal).End(NowNs());
  }
}

void Yielder::WakeSlowly() {
  if (asleep_.exchange(0, std::memory_order_acq_rel) != 0) FutexWakeAll(&asleep_);
}

void Yielder::Stop() {
  uint32_t runs = kRuns;
  if (!state_.compare_exchange_strong(runs, kEnds, std::memory_order_acq_rel)) return;
  WakeSlowly();
}

}  // namespace gpufence
