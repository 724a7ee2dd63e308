// vgpu-manager counts GPUs as the host does; this joins its indices to UUIDs.
#pragma once

#include "config/reading.h"

namespace gpufence {

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
