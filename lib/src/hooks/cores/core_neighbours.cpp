// Neighbours of a container that meets nobody in a node folder: what the GPU does beyond us, as
// NVML sees it. Asked only where a soft limit could use what nobody else wants.
#include <atomic>

#include "base/log.h"
#include "device/ids.h"
#include "device/nvml_calls.h"
#include "hooks/cores/core_pace.h"
#include "real.h"

namespace gpufence {
namespace {

// How busy the device was lately, in percent; false when NVML cannot tell (no NVML, MIG).
bool BusyPercent(const uint8_t uuid[16], uint32_t* percent) {
  nvmlDevice_t device = nullptr;
  nvmlUtilization_t utilization = {};
  if (!NvmlReady() || !NvmlHandleOf(uuid, &device) ||
      real::nvmlDeviceGetUtilizationRates(device, &utilization) != NVML_SUCCESS) {
    return false;
  }
  *percent = utilization.gpu;
  return true;
}

// Once, however often it is found.
void SayUnseen(uint32_t ordinal) {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  GPUFENCE_LOG(kWarn,
               "device %u: the soft core limit is not used: NVML does not tell how busy the GPU "
               "is, so that neighbours would not be seen. Set GPUFENCE_NODE_DIR to a folder that "
               "the GPU's containers share",
               ordinal);
}

}  // namespace

void LookForNeighbours(CoreDevice* device, uint64_t now_ns) {
  if (!device->seat.LooksForNeighbours() || !device->neighbours.IsDue(now_ns)) return;
  uint32_t percent = 100;
  const bool known = BusyPercent(device->uuid, &percent);
  if (!known) SayUnseen(device->ordinal);
  const bool seen = device->neighbours.Look(now_ns, device->seat.ChargedNs(), percent);
  if (seen || !known) device->seat.NoteForeign(now_ns);
}

}  // namespace gpufence
