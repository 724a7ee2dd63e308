#include "hooks/cores/core_fills.h"

#include "device/capture_mode.h"
#include "device/context_scope.h"
#include "device/markers/marking.h"

namespace gpufence {

void FindFilled(Cores* cores, const MarkedStream& stream) {
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

}  // namespace gpufence
