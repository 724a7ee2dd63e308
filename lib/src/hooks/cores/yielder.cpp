// Yield points in streams, and the thread that opens and closes them.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/futex.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/core_pace.h"
#include "real.h"

// See watcher.cpp.
extern "C" {
[[gnu::weak]] int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
[[gnu::weak]] int pthread_detach(pthread_t);
}

namespace gpufence {

// ---- points ----

namespace {

constexpr uint64_t kNoWord = 1;

std::atomic<uint64_t>& WordOf(const Cores& cores, const MarkedStream& stream) {
  return const_cast<Markers&>(cores.markers).streams.ContextOf(stream).yield_word;
}

}  // namespace

void FindYieldWord(Cores* cores, const MarkedStream& stream) {
  MarkedContext& context = cores->markers.streams.ContextOf(stream);
  if (context.yield_word.load(std::memory_order_relaxed) != 0) return;
  uint64_t word = 0;
  {
    const ContextScope scope(
        reinterpret_cast<CUcontext>(context.handle.load(std::memory_order_relaxed)));
    const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
    void* page = cores->markers.yields.GiveWord(stream.context, stream.ordinal);
    CUdeviceptr address = 0;
    if (scope && page != nullptr &&
        real::cuMemHostRegister_v2(page, YieldPoints::kPageBytes, CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS &&
        real::cuMemHostGetDevicePointer_v2(&address, page, 0) == CUDA_SUCCESS) {
      word = address;
    }
  }
  context.yield_word.store(word != 0 ? word : kNoWord, std::memory_order_relaxed);
}

bool YieldsOnGpu(const Cores& cores, const CoreDevice& device, const MarkedStream* stream) {
  return stream != nullptr && device.stands.load(std::memory_order_relaxed) != 0 &&
         (stream->word.load(std::memory_order_relaxed) & MarkedStream::kRunning) != 0 &&
         stream->QueuedLaunches() != 0 &&
         WordOf(cores, *stream).load(std::memory_order_relaxed) > kNoWord;
}

// Between the launch that was logged last and what is in front of it: where both are so much work,
// and where the GPU yields now and has come to no point that it could stand at. A launch that asked
// may stand between two markers, which would measure the point.
void CoreLaunch::PutYieldPoint() {
  if (begins_run_ || !YieldsOnGpu(*cores_, *device_, stream_)) return;
  const Markers& markers = cores_->markers;
  const uint32_t logged = stream_->log.count();
  const uint32_t launches = logged - stream_->yields_at;
  const uint32_t changes = markers.yields.ChangesOf(device_->ordinal);
  const bool yields_now =
      markers.yields.IsClosed(device_->ordinal) && stream_->yields_of != changes;
  const uint64_t since_ns =
      markers.lengths.OfNs(stream_->log, logged, launches, stream_->UsualNs());
  if (!yields_now && (launches < 2 || since_ns < kTuning.inferior_queue_ns)) return;
  stream_->yields_at = logged - 1;
  stream_->yields_of = changes;
  std::atomic<uint64_t>& word = WordOf(*cores_, *stream_);
  const auto handle = reinterpret_cast<CUstream>(stream_->handle.load(std::memory_order_relaxed));
  if (real::cuStreamWaitValue32_v2(handle, word.load(std::memory_order_relaxed),
                                   YieldPoints::kGoesOn,
                                   CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
    word.store(kNoWord, std::memory_order_relaxed);
  }
}

// ---- the thread ----

void Yielder::Begin(Cores* cores) {
  if (state_.load(std::memory_order_relaxed) != kNone) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  state_.store(kRuns, std::memory_order_release);
  const bool begun = pthread_create != nullptr && cores->markers.yields.Map() &&
                     pthread_create(&thread, nullptr, Main, cores) == 0;
  if (!begun) {
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

// Whether anything here may have to yield soon.
bool Yielder::Look(Cores* cores) {
  bool is_here = false;
  YieldPoints* points = &cores->markers.yields;
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    uint64_t now_ns = NowNs();
    const bool may_yield = device->seat.HasSuperior(now_ns);
    if (may_yield) {
      device->seat.MoveTurn(now_ns);
      is_here |= cores->markers.streams.IsActive(device->ordinal) ||
                 device->turn_waiters.load(std::memory_order_relaxed) != 0;
      now_ns = NowNs();
    }
    const bool may_stand = may_yield && device->seat.IsFarFromLimit(now_ns) &&
                           !device->seat.HasHostBoundSuperior(now_ns);
    device->stands.store(may_stand ? 1 : 0, std::memory_order_relaxed);
    const bool was_closed = points->IsClosed(device->ordinal);
    if (may_yield && device->seat.Yields(now_ns)) {
      points->Close(device->ordinal);
      device->closed.store(1, std::memory_order_release);
    } else {
      points->Open(device->ordinal);
      if (was_closed) Notify(device);
    }
  }
  return is_here;
}

void Yielder::Run(Cores* cores) {
  constexpr uint64_t kIdleNs = kTuning.nap_ns;
  while (state_.load(std::memory_order_acquire) == kRuns) {
    asleep_.store(0, std::memory_order_seq_cst);
    if (Look(cores)) {
      const uint32_t devices = cores->count.load(std::memory_order_acquire);
      const CoreDevice& device = cores->devices[0];
      const bool is_closed = cores->markers.yields.IsClosed(device.ordinal);
      if (devices == 1) {
        device.seat.AwaitSuperior(is_closed ? kTuning.close_look_ns : kTuning.soon_ns);
      } else {
        Nap(2 * kTuning.close_look_ns);
      }
      continue;
    }
    asleep_.store(1, std::memory_order_seq_cst);
    // Whoever began something before that store saw it awake.
    if (!Look(cores)) FutexWait(&asleep_, 1, kIdleNs);
  }
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    cores->markers.yields.Open(cores->devices[i].ordinal);
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
