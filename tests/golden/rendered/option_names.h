// option_names.h: hookgen 1, templates/option_names.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr const char* kOwnPath = "/etc/gadget.conf";

// In the order in which they are asked.
enum class Dialect : uint8_t {
  kGadgets,
  kOtherGadgets,
};

inline constexpr const char* kDialectNames[] = {
    "gadgets",
    "other.gadgets",
};

inline constexpr size_t kDialectCount = sizeof kDialectNames / sizeof kDialectNames[0];

// What a text means. Those before kHooks are limits.
enum class Setting : uint8_t {
  kSize,  // a size
  kOldName,  // text
};

}  // namespace gpufence
