// vgpu-manager's binary limit file, as bytes. Pure: reads a record, knows no path.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace gpufence {

inline constexpr size_t kVgpuRecordBytes = 2560;
inline constexpr size_t kVgpuDevices = 16;

struct VgpuDevice {
  bool active;
  uint8_t uuid[16];
  bool limits_memory;
  uint64_t total_bytes;
  uint64_t real_bytes;  // the physical part, where memory is oversold
  bool oversold;
  bool limits_cores;
  bool hard_cores;  // false: soft mode, up to soft_percent
  uint32_t hard_percent;
  uint32_t soft_percent;
};

struct VgpuRecord {
  bool stable;  // false: somebody is writing it
  std::string_view pod_uid;
  std::string_view container;
  VgpuDevice devices[kVgpuDevices];
};

// Null, or what is wrong with the file, as a clause.
const char* ReadVgpuRecord(std::string_view bytes, VgpuRecord* record);

}  // namespace gpufence
