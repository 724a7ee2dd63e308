#include "config/gpu_names.h"

#include "config/text.h"

namespace gpufence {
namespace {

int HexDigit(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  if (character >= 'A' && character <= 'F') return character - 'A' + 10;
  return -1;
}

}  // namespace

void WriteUuid(const uint8_t uuid[16], char text[kUuidTextBytes]) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::string_view kGpu = "GPU-";
  for (size_t i = 0; i < kGpu.size(); ++i) text[i] = kGpu[i];
  char* at = text + kGpu.size();
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kDigits[uuid[i] >> 4];
    *at++ = kDigits[uuid[i] & 15];
  }
  *at = '\0';
}

bool ParseUuid(std::string_view text, uint8_t uuid[16]) {
  const std::string_view prefix = First(text, 4);
  if (EqualsIgnoringCase(prefix, "gpu-") || EqualsIgnoringCase(prefix, "mig-")) {
    text.remove_prefix(prefix.size());
  }
  if (text.size() != 36) return false;
  size_t byte = 0;
  for (size_t i = 0; i < text.size();) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i++] != '-') return false;
      continue;
    }
    const int high = HexDigit(text[i]);
    const int low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    uuid[byte++] = static_cast<uint8_t>(high * 16 + low);
    i += 2;
  }
  return true;
}

namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";
constexpr std::string_view kGpu = "GPU-";
constexpr std::string_view kInstance = "MIG-";
constexpr size_t kUuidText = kUuidTextBytes - 1;

bool IsBeginning(std::string_view beginning, const uint8_t uuid[16]) {
  char text[kUuidTextBytes];
  WriteUuid(uuid, text);
  if (beginning.size() > kUuidText) return false;
  for (size_t i = 0; i < beginning.size(); ++i) {
    if (Lower(beginning[i]) != Lower(text[i])) return false;
  }
  return true;
}

// False: no number, or a larger one than any device has.
bool ReadIndex(std::string_view text, int32_t* index) {
  *index = 0;
  for (const char character : text) {
    if (!IsDigit(character) || *index >= static_cast<int32_t>(kMostLimitedDevices)) return false;
    *index = *index * 10 + (character - '0');
  }
  return !text.empty();
}

// The one device that an entry names; null: none, or several.
DeviceIdentity* Find(std::string_view entry, DeviceIdentity* devices, size_t count) {
  const bool by_uuid = StartsWith(entry, kGpu) && entry.size() > kGpu.size();
  int32_t index = 0;
  if (!by_uuid && !ReadIndex(entry, &index)) return nullptr;
  DeviceIdentity* found = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (by_uuid ? !IsBeginning(entry, devices[i].uuid) : devices[i].nvml_index != index) continue;
    if (found != nullptr) return nullptr;
    found = &devices[i];
  }
  return found;
}

void HideAll(DeviceIdentity* devices, size_t count) {
  for (size_t i = 0; i < count; ++i) devices[i].ordinal = kInvisible;
}

}  // namespace

std::string_view VisibleInstance(std::string_view visible) {
  std::string_view entry;
  if (!NextPart(&visible, ',', &entry)) return {};
  entry = Trim(entry, kBlanks);
  return StartsWith(entry, kInstance) ? entry : std::string_view{};
}

void NumberAsCuda(std::string_view visible, DeviceIdentity* devices, size_t count) {
  HideAll(devices, count);
  uint32_t ordinal = 0;
  std::string_view entry;
  while (NextPart(&visible, ',', &entry)) {
    DeviceIdentity* device = Find(Trim(entry, kBlanks), devices, count);
    if (device == nullptr) return;
    if (device->ordinal != kInvisible) return HideAll(devices, count);
    device->ordinal = ordinal++;
  }
}

}  // namespace gpufence
