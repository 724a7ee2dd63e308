// echo.h: hookgen 1, templates/echo.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "driver_abi.h"
#include "symbols.h"

// The last call that reached a fake driver. The caller's program owns it; both drivers write it.
struct EchoRecord {
  uint32_t calls;
  uint32_t sym;
  uint32_t size;
  unsigned char bytes[1024];  // the arguments as they arrived, one behind the other
};

extern "C" EchoRecord gpufence_echo;

namespace echo {

// What a result is called where arguments have positions.
inline constexpr unsigned kResult = 31;

// Exports without a prototype are called with more arguments than there are registers of each sort.
using Untyped = int(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, double, float);

// A value whose bytes tell symbol and position: two arguments of one call never agree, no float is
// a NaN, and every byte has a part in it.
template <typename T>
T Value(uint32_t sym, unsigned position) {
  static_assert(!std::is_same_v<T, bool>, "a bool has no byte pattern to recognise");
  unsigned char bytes[sizeof(T)];
  for (unsigned i = 0; i < sizeof(T); ++i) {
    bytes[i] = static_cast<unsigned char>((sym * 37 + position * 11 + i * 5 + 1) & 0x7f);
  }
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void Append(EchoRecord* record, const T& value) {
  memcpy(record->bytes + record->size, &value, sizeof(T));
  record->size += static_cast<uint32_t>(sizeof(T));
}

// The body of every fake function: record the call, answer with the symbol's own result.
template <typename Result, typename... Args>
Result Recorded(uint32_t sym, const Args&... args) {
  ++gpufence_echo.calls;
  gpufence_echo.sym = sym;
  gpufence_echo.size = 0;
  (Append(&gpufence_echo, args), ...);
  if constexpr (!std::is_void_v<Result>) return Value<Result>(sym, kResult);
}

}  // namespace echo
