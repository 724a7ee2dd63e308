#include "config/uuid.h"

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

}  // namespace gpufence
