#include "policy/view.h"

namespace gpufence {
namespace {

constexpr uint64_t Lower(uint64_t one, uint64_t other) { return one < other ? one : other; }

}  // namespace

MemoryView ViewMemory(const Held& held, uint64_t driver_total_bytes, uint64_t driver_free_bytes) {
  MemoryView view = {};
  const bool is_virtual = held.is_oversold && held.limit_bytes != UINT64_MAX;
  view.total_bytes = is_virtual ? held.limit_bytes : Lower(held.limit_bytes, driver_total_bytes);
  view.used_bytes = Lower(held.used_bytes, view.total_bytes);
  view.free_bytes = view.total_bytes - view.used_bytes;
  if (!is_virtual) view.free_bytes = Lower(view.free_bytes, driver_free_bytes);
  view.reserved_bytes = view.total_bytes - view.used_bytes - view.free_bytes;
  return view;
}

}  // namespace gpufence
