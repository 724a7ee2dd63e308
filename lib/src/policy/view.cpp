#include "policy/view.h"

namespace gpufence {
namespace {

constexpr uint64_t Lower(uint64_t one, uint64_t other) { return one < other ? one : other; }

}  // namespace

MemoryView ViewMemory(uint64_t limit_bytes, uint64_t used_bytes, uint64_t driver_total_bytes,
                      uint64_t driver_free_bytes) {
  MemoryView view = {};
  view.total_bytes = Lower(limit_bytes, driver_total_bytes);
  view.used_bytes = Lower(used_bytes, view.total_bytes);
  view.free_bytes = Lower(view.total_bytes - view.used_bytes, driver_free_bytes);
  view.reserved_bytes = view.total_bytes - view.used_bytes - view.free_bytes;
  return view;
}

}  // namespace gpufence
