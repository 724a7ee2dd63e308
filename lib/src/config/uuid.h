// GPU UUIDs as text. Pure. Must not know devices.
#pragma once

#include <stdint.h>

#include <string_view>

namespace gpufence {

// "GPU-…", "MIG-…" or bare, 8-4-4-4-12 hexadecimal digits of any case. False: not a UUID.
bool ParseUuid(std::string_view text, uint8_t uuid[16]);

}  // namespace gpufence
