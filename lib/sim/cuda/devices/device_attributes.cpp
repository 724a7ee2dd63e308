// cuDeviceGetAttribute: what the simulated GPU says it can do.
//
// Owns the table of answers: an H200's with driver 580, but 0 for what the simulator lacks.
#include <limits.h>
#include <stddef.h>

#include "cuda/devices/device.h"
#include "machine/calls.h"
#include "machine/config.h"
#include "machine/machine.h"

namespace {

// Answers by attribute number, from 1; kUnknown where the simulator has no constant answer.
constexpr int kUnknown = INT_MIN;
// clang-format off: one row per group, its first number at the end
constexpr int kAnswers[] = {
    kUnknown,  // 0 is no attribute
    1024, 1024, 1024, 64, INT_MAX, 65535, 65535, 49152,             // 1: block, grid, shared memory
    65536, 32, INT_MAX, 65536, 1980000, 512, 1, kUnknown,           // 9: warp, pitch, clock, SMs
    0, 0, 1, 0, 131072, 131072, 65536, 16384, 16384, 16384,         // 17: textures
    32768, 32768, 2048, 512, 1, 1, kUnknown, kUnknown, 0,           // 27: ECC, PCI bus and device
    3201000, 6016, 62914560, 2048, 3, 1, 32768, 2048, 1,            // 36: memory, L2, engines
    32768, 32768, 8192, 8192, 32768, kUnknown, 32, 32768, 32768,    // 45: PCI domain
    2046, 32768, 131072, 65536, 16384, 16384, 16384, 32768, 2048,   // 54: surfaces
    32768, 32768, 2048, 32768, 32768, 2046, 268435456, 131072,      // 63
    65000, 2097120, 32768, 32768, 9, 0, 32768, 1, 1, 1,             // 71: compute capability 9.0
    233472, 65536, 1, 0, kUnknown, 0, 2, 0, 1, 1, 1,                // 81: managed memory
    0, 0, 0, 1, 1, 232448, 0, 1, 0, 0,                              // 92: cooperative launches
    1, 1, 0, 0, 32, 1, 39321600, 134217728, 1, 1024,                // 102: virtual memory
    1, 1, 1, 1, 1, 1, 100, 1,                                       // 112: sparse arrays, pools
    1, 1, 1, 1, 0, 1, 4, 1, 0, 1,                                   // 120: clusters
    0, -1, 0, 0, 0, 0, 0, 0, 0,                                     // 130: NUMA, no multicast
    kUnknown, 0, 1, 1, 0, 1, 1, 0, 0,                               // 139: host pools
};
// clang-format on
constexpr int kAnswerCount = static_cast<int>(sizeof(kAnswers) / sizeof(kAnswers[0]));

static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] == 62914560);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] == 32);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] == 9);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] == 232448);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] == 32);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_NUMA_ID] == -1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] == 0);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID] == kUnknown);

}  // namespace

extern "C" CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SIM_CALL(cuDeviceGetAttribute, pi, attrib, dev);
  if (pi == nullptr || attrib < 1) return CUDA_ERROR_INVALID_VALUE;
  if (attrib >= kAnswerCount) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const sim::machine::DeviceRecord& record = sim::machine::Device(sim::device::Physical(dev));
  switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *pi = static_cast<int>(record.sm_count);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *pi = static_cast<int>(record.pci_bus);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      *pi = static_cast<int>(record.pci_device);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      *pi = static_cast<int>(record.pci_domain);
      break;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      *pi = sim::device::Physical(dev);
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
      *pi = 0;  // no vendor's device
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *pi = sim::GetConfig()->is_mps;
      break;
    default:
      *pi = kAnswers[attrib];
  }
  return CUDA_SUCCESS;
}
