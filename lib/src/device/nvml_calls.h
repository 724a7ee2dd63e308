// NVML for this library's own questions: opened at the first one, never shut down, so that a
// program's nvmlShutdown does not take it away. Must not know what is asked.
#pragma once

#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

// True when NVML answers in this process. The first call costs milliseconds; failing once is final,
// so that a container without NVML does not pay again.
bool NvmlReady();

// "GPU-01234567-89ab-cdef-0123-456789abcdef" and its NUL.
inline constexpr size_t kUuidText = 41;

// Writes the text that NVML knows a UUID by; `prefix` is "GPU" or "MIG".
void FormatUuid(const char* prefix, const uint8_t uuid[16], char text[kUuidText]);

// Reads one: the 32 hexadecimal digits behind the prefix. False for anything else, also for the
// older "MIG-GPU-<uuid>/<instance>/<instance>", which names no UUID of its own.
bool ParseUuid(const char* text, uint8_t uuid[16]);

}  // namespace gpufence
