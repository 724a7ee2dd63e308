// What vgpu-manager says of limits: its binary file vgpu.config, as bytes, and its own numbers of
// GPUs, which are the host's and are joined to UUIDs here.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "config/claims.h"

namespace gpufence {

// The file as bytes. Pure: reads a record, knows no path.
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

// vgpu-manager counts GPUs as the host does; this joins its indices to UUIDs.
class HostDevices {
 public:
  // From MANAGER_VISIBLE_DEVICE_<i>, MANAGER_VISIBLE_DEVICES, GPU_DEVICES_UUID or
  // NVIDIA_VISIBLE_DEVICES. False: one of the first three is unreadable and an index depends on it.
  bool Read(Reading* reading);

  // Points a claim at the GPU with this host index: at its UUID (all zero: the container has no
  // such GPU), or, where nothing maps the indices, at NVML's.
  void Locate(uint32_t index, Claim* claim) const;

 private:
  static constexpr size_t kMost = kMostLimitedDevices;
  enum class Listing : uint8_t { kNone, kRead, kUnreadable };

  Listing ReadList(std::string_view list);

  bool mapped_ = false;
  uint8_t uuids_[kMost][16] = {};
};

}  // namespace gpufence
