// GPU UUIDs as text. Pure. Must not know devices.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace gpufence {

// "GPU-…", "MIG-…" or bare, 8-4-4-4-12 hexadecimal digits of any case. False: not a UUID.
bool ParseUuid(std::string_view text, uint8_t uuid[16]);

inline constexpr size_t kUuidTextBytes = 41;  // "GPU-", 36 characters and the end

// As NVML writes it.
void WriteUuid(const uint8_t uuid[16], char text[kUuidTextBytes]);

}  // namespace gpufence
