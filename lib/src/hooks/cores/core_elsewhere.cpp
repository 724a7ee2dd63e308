// Graphs that have kernels on other devices than their stream's.
#include <algorithm>
#include <initializer_list>

#include "base/futex.h"
#include "base/log.h"
#include "device/capture_mode.h"
#include "device/context_scope.h"
#include "device/ids.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/capture.h"
#include "real.h"

namespace gpufence {
namespace {

// Until it has nothing left, or for as long as one would be patient with kernels: it may wait for
// what the host does behind this very launch.
void AwaitStream(CUstream stream, uint64_t since_ns) {
  constexpr uint64_t kNapNs = 50'000;
  while (real::cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && NowNs() < since_ns + kPatienceNs) {
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
  GPUFENCE_LOG(kInfo,
               "a graph has kernels on several GPUs: its launches are waited for, so that the "
               "core limit holds on each of them");
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
