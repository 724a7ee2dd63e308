// Which devices CUDA_VISIBLE_DEVICES leaves visible, and in which order.
//
// Owns the variable's grammar.  Must not know what a device can do.  Of GPUs that are split a
// process sees one instance: the first that the variable names, or that there is.
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda/devices/device.h"
#include "machine/machine.h"
#include "machine/version.h"

namespace sim::device {
namespace {

constexpr size_t kUuidTextBytes = 41;  // "GPU-" and 36 characters and the NUL
constexpr int kNone = -1;

constexpr int32_t kDomainsSince = 13040;  // CUDA 13.4
constexpr int kDomainsOfDevice = 2;

// A place that no headers know yet, and a driver of tomorrow takes for the device that `id` names.
constexpr int kTypeOfTomorrow = 7;

constinit int g_physical[kMaxDevices] = {};
constinit int g_count = 0;
constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;

void WriteUuid(const char* kind, const uint8_t* uuid, char* text) {
  memcpy(text, kind, 4);
  char* at = text + 4;
  for (int index = 0; index < 16; ++index) {
    if (index == 4 || index == 6 || index == 8 || index == 10) *at++ = '-';
    *at++ = "0123456789abcdef"[uuid[index] >> 4];
    *at++ = "0123456789abcdef"[uuid[index] & 15];
  }
  *at = '\0';
}

// The one GPU whose UUID begins with the given text, which begins with "GPU-"; its first instance
// where it is split.
int FindByUuidPrefix(const char* prefix, size_t bytes) {
  int found = kNone;
  for (int board = 0; board < machine::BoardCount(); ++board) {
    const int index = board * machine::DevicesPerBoard();
    char text[kUuidTextBytes];
    WriteUuid("GPU-", machine::Device(index).board_uuid, text);
    if (bytes >= kUuidTextBytes || strncasecmp(text, prefix, bytes) != 0) continue;
    if (found != kNone) return kNone;  // ambiguous
    found = index;
  }
  return found;
}

// The instance with this UUID, which is written in full.
int FindInstance(const char* name, size_t bytes) {
  for (int index = 0; machine::InstancesPerBoard() > 0 && index < machine::DeviceCount(); ++index) {
    char text[kUuidTextBytes];
    WriteUuid("MIG-", machine::Device(index).uuid, text);
    if (bytes == kUuidTextBytes - 1 && strncasecmp(text, name, bytes) == 0) return index;
  }
  return kNone;
}

int FindByOrdinal(const char* text, size_t bytes) {
  int ordinal = 0;
  for (size_t index = 0; index < bytes; ++index) {
    if (!isdigit(static_cast<unsigned char>(text[index])) || ordinal > kMaxDevices) return kNone;
    ordinal = ordinal * 10 + (text[index] - '0');
  }
  if (bytes == 0 || ordinal >= machine::BoardCount()) return kNone;
  return ordinal * machine::DevicesPerBoard();
}

// The device that one entry of the list names, blanks around it ignored.
int FindEntry(const char* text, size_t bytes) {
  while (bytes > 0 && isspace(static_cast<unsigned char>(*text))) ++text, --bytes;
  while (bytes > 0 && isspace(static_cast<unsigned char>(text[bytes - 1]))) --bytes;
  if (bytes > 4 && strncmp(text, "GPU-", 4) == 0) return FindByUuidPrefix(text, bytes);
  if (bytes > 4 && strncmp(text, "MIG-", 4) == 0) return FindInstance(text, bytes);
  return FindByOrdinal(text, bytes);
}

// The first entry that names no device ends the list; those before it stay visible.  A device named
// twice makes all of them invisible.
void ReadList(const char* list) {
  for (const char* at = list;;) {
    const size_t bytes = strcspn(at, ",");
    const int physical = FindEntry(at, bytes);
    if (physical == kNone) return;
    if (Logical(physical) != kNone) {
      g_count = 0;
      return;
    }
    g_physical[g_count++] = physical;
    if (at[bytes] == '\0' || machine::InstancesPerBoard() > 0) return;
    at += bytes + 1;
  }
}

void EnumerateOnce() {
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  if (list != nullptr) return ReadList(list);
  g_count = machine::DeviceCount();
  if (g_count > 1 && machine::InstancesPerBoard() > 0) g_count = 1;
  for (int index = 0; index < g_count; ++index) g_physical[index] = index;
}

}  // namespace

int Enumerate() {
  pthread_once(&g_once, EnumerateOnce);
  return g_count;
}

int VisibleCount() { return g_count; }

bool IsValid(CUdevice device) { return device >= 0 && device < g_count; }

int Physical(CUdevice device) { return g_physical[device]; }

int Logical(int physical) {
  for (int index = 0; index < g_count; ++index) {
    if (g_physical[index] == physical) return index;
  }
  return kNone;
}

int SmCount(CUdevice device) {
  return static_cast<int>(machine::Device(Physical(device)).sm_count);
}

CUresult ResolveLocation(const CUmemLocation& location, int* device) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *device = location.id;
      return IsValid(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *device = -1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult ResolveAllocation(const CUmemLocation& location, int* device) {
  const bool is_domain = location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
  if (is_domain && ConfiguredDriver().cuda_version >= kDomainsSince) {
    if (DomainOf(location) >= kDomainsOfDevice) return CUDA_ERROR_INVALID_VALUE;
    *device = location.localized.deviceId;
    return IsValid(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  if (static_cast<int>(location.type) == kTypeOfTomorrow &&
      ConfiguredDriver().branch == kLatestBranch) {
    *device = location.id;
    return IsValid(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  return ResolveLocation(location, device);
}

int DomainOf(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
             ? location.localized.localityDomainId
             : -1;
}

}  // namespace sim::device
