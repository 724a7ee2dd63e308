// Which GPU is meant: CUDA ordinal, UUID, NVML handle, and the GPU of a context, pointer or pool.
// And NVML for this library's own questions: opened at the first one, never shut down, so that a
// program's nvmlShutdown does not take it away. Must not know limits, state or policy.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "real.h"

namespace gpufence {

inline constexpr uint32_t kNoDevice = UINT32_MAX;

// What a CUDA device is known by in all processes: its UUID (its own for a MIG instance), or its
// place on the PCI bus where the driver has no function that tells UUIDs (before CUDA 9.2). False
// when the driver will not say.
bool IdentityOf(CUdevice device, uint8_t identity[16]);

// Whether an identity is a place on the PCI bus.
bool IsPlace(const uint8_t identity[16]);

// The place of an NVML device on the PCI bus, as an identity. False when NVML will not say.
bool PlaceOf(nvmlDevice_t device, uint8_t identity[16]);

// The UUID of an NVML device handle (nvmlDeviceGetUUID's text, parsed). False when unknown.
bool UuidOf(nvmlDevice_t device, uint8_t uuid[16]);

// Whether the NVML device is the one of that identity.
bool IsDevice(nvmlDevice_t device, const uint8_t identity[16]);

// Position of the device in NVML's list, or -1.
int32_t NvmlIndexOf(const uint8_t identity[16]);

// The NVML handle of a device; false when NVML is absent or does not know it.
bool NvmlHandleOf(const uint8_t identity[16], nvmlDevice_t* handle);

// The handle of the calling thread's context; 0: it has none.
inline uint64_t CurrentContext() {
  CUcontext current = nullptr;
  real::cuCtxGetCurrent(&current);
  return reinterpret_cast<uint64_t>(current);
}

// The calling thread's device: its ordinal, or kNoDevice without a current context.
uint32_t CurrentDevice();

// The device of a context: its ordinal, or kNoDevice when the driver will not say.
uint32_t DeviceOfContext(CUcontext context);

// Where memory is asked for, by the values of this driver's API. `kNowhere`: of no place in
// particular, as of managed memory. `kUnknown`: none of the types that our headers know, or one at
// which nobody can allocate; whoever asks for memory there is refused (hooks/fence.h).
enum class Place : uint8_t { kDevice, kHost, kNowhere, kUnknown };

struct Location {
  Place place;
  uint32_t ordinal;  // kNoDevice unless it is a device, or a part of one
};

Location LocationOf(const CUmemLocation_v1& location);

// The device of memory that is there already; kNoDevice for host memory and whatever is unknown.
inline uint32_t DeviceOfLocation(const CUmemLocation_v1& location) {
  return LocationOf(location).ordinal;
}

// ---- NVML ----

// True when NVML answers in this process. The first call costs milliseconds; failing once is final,
// so that a container without NVML does not pay again.
bool NvmlReady();

// "GPU-01234567-89ab-cdef-0123-456789abcdef" and its NUL.
inline constexpr size_t kUuidText = 41;

// Writes the text that NVML knows a UUID by; `prefix` is "GPU" or "MIG".
void FormatUuid(const char* prefix, const uint8_t uuid[16], char text[kUuidText]);

// Reads one: the 32 hexadecimal digits behind the prefix. False for anything else, also for the
// older "MIG-GPU-<uuid>/<instance>/<instance>", which names no UUID of its own.
bool ParseUuid(const char* text, uint8_t uuid[16]);

}  // namespace gpufence
