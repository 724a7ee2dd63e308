#include "device/ids.h"

#include <string.h>
#include <unistd.h>

#include <atomic>

#include "base/resolve.h"
#include "device/context_scope.h"
#include "real.h"

namespace gpufence {
namespace {

bool AreEqual(const uint8_t one[16], const uint8_t other[16]) {
  return memcmp(one, other, 16) == 0;
}

// An identity that is a place: domain, bus and device, then what no UUID ends with. The beginning
// differs between devices, since rows of shared files are found by it.
constexpr char kPlaceMark[] = "pci-place";  // with its NUL
constexpr size_t kMarkAt = 6;
static_assert(kMarkAt + sizeof kPlaceMark == 16);

void FormPlace(uint32_t domain, uint32_t bus, uint32_t device, uint8_t identity[16]) {
  for (int byte = 0; byte < 4; ++byte) {
    identity[byte] = static_cast<uint8_t>(domain >> (24 - 8 * byte));
  }
  identity[4] = static_cast<uint8_t>(bus);
  identity[5] = static_cast<uint8_t>(device);
  memcpy(identity + kMarkAt, kPlaceMark, sizeof kPlaceMark);
}

bool PlaceOf(CUdevice device, uint8_t identity[16]) {
  int domain = 0;
  int bus = 0;
  int slot = 0;
  if (real::cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device) !=
          CUDA_SUCCESS ||
      real::cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device) != CUDA_SUCCESS ||
      real::cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device) !=
          CUDA_SUCCESS) {
    return false;
  }
  FormPlace(static_cast<uint32_t>(domain), static_cast<uint32_t>(bus), static_cast<uint32_t>(slot),
            identity);
  return true;
}

bool HandleByText(const char* prefix, const uint8_t uuid[16], nvmlDevice_t* handle) {
  char text[kUuidText];
  FormatUuid(prefix, uuid, text);
  return real::nvmlDeviceGetHandleByUUID(text, handle) == NVML_SUCCESS;
}

// Handles that were found before: finding one by its text takes longer than what is asked of it.
// Never forgotten, since a device keeps its handle as long as NVML is open.
struct KnownHandle {
  std::atomic<uint64_t> tag;  // 0: free
  std::atomic<nvmlDevice_t> handle;
};
constexpr size_t kMostHandles = 64;
constinit KnownHandle known_handles[kMostHandles] = {};

// Never 0; different for different UUIDs in all likelihood, since half of their bits are random.
uint64_t TagOf(const uint8_t uuid[16]) {
  uint64_t halves[2];
  memcpy(halves, uuid, sizeof halves);
  return (halves[0] * 0x9e3779b97f4a7c15u ^ halves[1]) | 1;
}

nvmlDevice_t KnownHandleOf(uint64_t tag) {
  for (const KnownHandle& known : known_handles) {
    const uint64_t seen = known.tag.load(std::memory_order_acquire);
    if (seen == tag) return known.handle.load(std::memory_order_acquire);
    if (seen == 0) return nullptr;
  }
  return nullptr;
}

// A reader that comes between the two stores finds no handle yet and asks NVML itself.
void RememberHandle(uint64_t tag, nvmlDevice_t handle) {
  for (KnownHandle& known : known_handles) {
    uint64_t seen = 0;
    if (known.tag.compare_exchange_strong(seen, tag, std::memory_order_acq_rel) || seen == tag) {
      known.handle.store(handle, std::memory_order_release);
      return;
    }
  }
}

// The other way round, for boards: an instance's handle may be dealt again when it ends.
struct KnownUuid {
  std::atomic<uint64_t> handle;  // 0: free; kTaken: being written
  uint8_t uuid[16];              // before the handle
};
constexpr uint64_t kTaken = 1;
constinit KnownUuid known_uuids[kMostHandles] = {};

bool FindKnownUuid(nvmlDevice_t device, uint8_t uuid[16]) {
  for (const KnownUuid& known : known_uuids) {
    const uint64_t seen = known.handle.load(std::memory_order_acquire);
    if (seen == 0) return false;
    if (seen != reinterpret_cast<uint64_t>(device)) continue;
    memcpy(uuid, known.uuid, sizeof known.uuid);
    return true;
  }
  return false;
}

// Two threads may both remember it, in two places.
void RememberUuid(nvmlDevice_t device, const uint8_t uuid[16]) {
  for (KnownUuid& known : known_uuids) {
    uint64_t free_place = 0;
    if (!known.handle.compare_exchange_strong(free_place, kTaken, std::memory_order_relaxed)) {
      continue;
    }
    memcpy(known.uuid, uuid, sizeof known.uuid);
    known.handle.store(reinterpret_cast<uint64_t>(device), std::memory_order_release);
    return;
  }
}

int32_t IndexInList(const uint8_t identity[16], nvmlDevice_t* device) {
  unsigned count = 0;
  if (real::nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS) return -1;
  for (unsigned index = 0; index < count; ++index) {
    if (real::nvmlDeviceGetHandleByIndex_v2(index, device) == NVML_SUCCESS &&
        IsDevice(*device, identity)) {
      return static_cast<int32_t>(index);
    }
  }
  return -1;
}

bool FindHandle(const uint8_t identity[16], nvmlDevice_t* handle) {
  if (IsPlace(identity)) return IndexInList(identity, handle) >= 0;
  return HandleByText("GPU", identity, handle) || HandleByText("MIG", identity, handle);
}

}  // namespace

// A form that fails is not made up for by another one, whose answer may differ: all processes of a
// container must know the device by the same identity.
bool IdentityOf(CUdevice device, uint8_t identity[16]) {
  const bool has_second = DriverHas(kSym_cuDeviceGetUuid_v2);  // since CUDA 11.4
  if (!has_second && !DriverHas(kSym_cuDeviceGetUuid)) return PlaceOf(device, identity);
  CUuuid answer = {};
  const CUresult rc = has_second ? real::cuDeviceGetUuid_v2(&answer, device)
                                 : real::cuDeviceGetUuid(&answer, device);
  if (rc != CUDA_SUCCESS) return false;
  memcpy(identity, answer.bytes, sizeof answer.bytes);
  return true;
}

bool IsPlace(const uint8_t identity[16]) {
  return memcmp(identity + kMarkAt, kPlaceMark, sizeof kPlaceMark) == 0;
}

bool PlaceOf(nvmlDevice_t device, uint8_t identity[16]) {
  nvmlPciInfo_t info = {};  // the second version's, and more
  if (real::nvmlDeviceGetPciInfo_v2(device, &info) != NVML_SUCCESS) return false;
  FormPlace(info.domain, info.bus, info.device, identity);
  return true;
}

bool IsDevice(nvmlDevice_t device, const uint8_t identity[16]) {
  uint8_t found[16];
  return (IsPlace(identity) ? PlaceOf(device, found) : UuidOf(device, found)) &&
         AreEqual(found, identity);
}

bool UuidOf(nvmlDevice_t device, uint8_t uuid[16]) {
  if (FindKnownUuid(device, uuid)) return true;
  char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
  if (real::nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS ||
      !ParseUuid(text, uuid)) {
    return false;
  }
  if (memcmp(text, "GPU-", 4) == 0) RememberUuid(device, uuid);
  return true;
}

bool NvmlHandleOf(const uint8_t identity[16], nvmlDevice_t* handle) {
  if (!NvmlReady()) return false;
  const uint64_t tag = TagOf(identity);
  *handle = KnownHandleOf(tag);
  if (*handle != nullptr) return true;
  if (!FindHandle(identity, handle)) return false;
  RememberHandle(tag, *handle);
  return true;
}

// An instance has no place in NVML's list: its board has.
int32_t NvmlIndexOf(const uint8_t identity[16]) {
  if (!NvmlReady()) return -1;
  nvmlDevice_t device = nullptr;
  const int32_t index = IndexInList(identity, &device);
  if (index >= 0 || IsPlace(identity)) return index;
  nvmlDevice_t instance = nullptr;
  nvmlDevice_t board = nullptr;
  uint8_t found[16];
  if (HandleByText("MIG", identity, &instance) &&
      real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &board) == NVML_SUCCESS &&
      UuidOf(board, found)) {
    return IndexInList(found, &device);
  }
  return -1;
}

uint32_t CurrentDevice() {
  CUdevice device = 0;
  return real::cuCtxGetDevice(&device) == CUDA_SUCCESS ? static_cast<uint32_t>(device) : kNoDevice;
}

uint32_t DeviceOfContext(CUcontext context) {
  const ContextScope scope(context);
  return scope ? CurrentDevice() : kNoDevice;
}

Location LocationOf(const CUmemLocation_v1& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return {Place::kDevice, static_cast<uint32_t>(location.id)};
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
      return {Place::kDevice, location.localized.deviceId};
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return {Place::kHost, kNoDevice};
    case CU_MEM_LOCATION_TYPE_NONE:
      return {Place::kNowhere, kNoDevice};
    case CU_MEM_LOCATION_TYPE_INVISIBLE:  // other processes' memory, on a GPU that is not shown
    default:
      return {Place::kUnknown, kNoDevice};
  }
}

// ---- NVML ----

namespace {

// The process that asked, so that a forked child asks for itself.
constinit std::atomic<int> ready_pid{0};
constinit std::atomic<int> failed_pid{0};

constexpr char kDigits[] = "0123456789abcdef";
// A dash stands before the bytes 4, 6, 8 and 10.
constexpr bool DashBefore(int byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

int DigitValue(char digit) {
  const char lower = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  const char* found = lower != '\0' ? strchr(kDigits, lower) : nullptr;
  return found != nullptr ? static_cast<int>(found - kDigits) : -1;
}

}  // namespace

bool NvmlReady() {
  const int pid = getpid();
  if (ready_pid.load(std::memory_order_acquire) == pid) return true;
  if (failed_pid.load(std::memory_order_relaxed) == pid) return false;
  const bool ready = real::nvmlInit_v2() == NVML_SUCCESS;
  (ready ? ready_pid : failed_pid).store(pid, std::memory_order_release);
  return ready;
}

void FormatUuid(const char* prefix, const uint8_t uuid[16], char text[kUuidText]) {
  char* at = text;
  while (*prefix != '\0') *at++ = *prefix++;
  *at++ = '-';
  for (int byte = 0; byte < 16; ++byte) {
    if (DashBefore(byte)) *at++ = '-';
    *at++ = kDigits[uuid[byte] >> 4];
    *at++ = kDigits[uuid[byte] & 15];
  }
  *at = '\0';
}

bool ParseUuid(const char* text, uint8_t uuid[16]) {
  if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) return false;
  text += 4;
  for (int byte = 0; byte < 16; ++byte) {
    if (DashBefore(byte) && *text++ != '-') return false;
    const int high = DigitValue(text[0]);
    const int low = high < 0 ? -1 : DigitValue(text[1]);
    if (low < 0) return false;
    uuid[byte] = static_cast<uint8_t>(high << 4 | low);
    text += 2;
  }
  return *text == '\0';
}

}  // namespace gpufence
