#include "config/vgpu_config.h"

#include <string.h>

#include "config/uuid.h"

namespace gpufence {
namespace {

// Layout 1 of vgpu-manager 1.0.0; little endian, as every machine we build for.
constexpr uint32_t kMagic = 0x56474346;
constexpr uint32_t kLayout = 1;
constexpr size_t kDevicesAt = 512;
constexpr size_t kDeviceBytes = 128;
constexpr size_t kPodUidAt = 128;
constexpr size_t kContainerAt = 304;

uint32_t Word(const char* bytes) {
  uint32_t word = 0;
  memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t LongWord(const char* bytes) {
  uint64_t word = 0;
  memcpy(&word, bytes, sizeof word);
  return word;
}

// A text in a field of fixed size, ended by a NUL or by the field.
std::string_view Field(const char* bytes, size_t size) { return {bytes, strnlen(bytes, size)}; }

bool ReadFlag(const char* bytes, bool* flag) {
  const uint32_t word = Word(bytes);
  *flag = word == 1;
  return word <= 1;
}

bool IsPercent(uint32_t percent) { return percent >= 1 && percent <= 100; }

const char* ReadDevice(const char* bytes, VgpuDevice* device) {
  *device = VgpuDevice{};
  if (!ReadFlag(bytes + 96, &device->active)) return "has a flag that is neither 0 nor 1";
  if (!device->active) return nullptr;
  if (!ReadFlag(bytes + 80, &device->limits_cores) || !ReadFlag(bytes + 84, &device->hard_cores) ||
      !ReadFlag(bytes + 88, &device->limits_memory) || !ReadFlag(bytes + 92, &device->oversold)) {
    return "has a flag that is neither 0 nor 1";
  }
  if (!ParseUuid(Field(bytes + 8, 48), device->uuid)) return "names a GPU by no UUID";
  device->total_bytes = LongWord(bytes + 56);
  device->real_bytes = LongWord(bytes + 64);
  device->hard_percent = Word(bytes + 72);
  device->soft_percent = Word(bytes + 76);
  if (device->limits_memory &&
      (device->total_bytes == 0 || device->total_bytes > uint64_t{INT64_MAX})) {
    return "has a memory limit that is no size";
  }
  if (device->limits_cores && (!IsPercent(device->hard_percent) ||
                               (!device->hard_cores && !IsPercent(device->soft_percent)))) {
    return "has a core limit that is no percentage";
  }
  return nullptr;
}

}  // namespace

const char* ReadVgpuRecord(std::string_view bytes, VgpuRecord* record) {
  const char* start = bytes.data();
  if (bytes.size() < kVgpuRecordBytes) return "is too short";
  if (Word(start) != kMagic) return "does not start as vgpu-manager writes it";
  if (Word(start + 4) != kLayout) return "has an unknown layout version";
  if (Word(start + 8) != kVgpuRecordBytes) return "has an unknown size";
  if (Word(start + 12) != kVgpuDevices) return "has an unknown number of devices";
  record->pod_uid = Field(start + kPodUidAt, 48);
  record->container = Field(start + kContainerAt, 64);
  record->stable = true;
  for (size_t i = 0; i < kVgpuDevices; ++i) {
    const char* device = start + kDevicesAt + i * kDeviceBytes;
    record->stable = record->stable && Word(device) % 2 == 0;
  }
  if (!record->stable) return nullptr;
  for (size_t i = 0; i < kVgpuDevices; ++i) {
    const char* wrong = ReadDevice(start + kDevicesAt + i * kDeviceBytes, &record->devices[i]);
    if (wrong != nullptr) return wrong;
  }
  return nullptr;
}

}  // namespace gpufence
