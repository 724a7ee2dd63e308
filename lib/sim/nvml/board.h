// The machine's devices as NVML hands them out, and what several of its families need to know of
// one: its serial number and its load.
//
// Owns handles and the shapes in which NVML answers text. Must not know anything else that is asked
// about a device.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "machine/machine.h"

namespace sim::nvml {

inline constexpr int kNoDevice = -1;

// What a field holds where NVML has no figure: instance ids of a device without MIG.
inline constexpr unsigned kNotAvailable = 0xffffffffu;

// The handle of a GPU, by its number below machine::BoardCount(); of an instance of a split one, by
// machine index.
nvmlDevice_t BoardHandle(int board);
nvmlDevice_t InstanceHandle(int index);

// The machine index behind a handle, or kNoDevice when it is none of ours. A split GPU's is that of
// its first instance: they share what is asked about most.
int IndexOf(nvmlDevice_t device);

bool IsInstance(nvmlDevice_t device);

// The machine indices that a handle stands for: from IndexOf on, so many.
int CountOf(nvmlDevice_t device);

// Whether the GPU behind a valid handle is split; then nobody tells how busy anything is.
bool IsSplit();

// The version word of NVML's versioned structs: their size, and in the upper byte their number.
template <typename Struct>
constexpr unsigned VersionOf(unsigned number) {
  return static_cast<unsigned>(sizeof(Struct)) | number << 24;
}

// Copies text and its NUL when they fit into `length` bytes. NVML_ERROR_INSUFFICIENT_SIZE
// otherwise, NVML_ERROR_INVALID_ARGUMENT without a buffer; nothing is then written.
nvmlReturn_t PutText(const char* text, char* buffer, unsigned length);

// Writes one value through a caller's pointer, or refuses a null one.
template <typename Value>
nvmlReturn_t Put(Value* out, Value value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

// The same for a function about one device, whose handle is looked at first.
template <typename Value>
nvmlReturn_t PutFor(nvmlDevice_t device, Value* out, Value value) {
  return IndexOf(device) == kNoDevice ? NVML_ERROR_INVALID_ARGUMENT : Put(out, value);
}

// "GPU-01234567-89ab-cdef-0123-456789abcdef" and its NUL, "MIG-..." for an instance.
inline constexpr unsigned kUuidTextBytes = 41;
void FormatUuid(nvmlDevice_t device, char text[kUuidTextBytes]);

// A board's serial number: thirteen digits, from the UUID, so that it is as lasting.
inline constexpr unsigned kSerialTextBytes = 14;
void FormatSerial(const machine::DeviceRecord& record, char text[kSerialTextBytes]);

// Percent of the newest sample period in which the device of this machine index was busy.
unsigned LoadPercent(int index);

}  // namespace sim::nvml
