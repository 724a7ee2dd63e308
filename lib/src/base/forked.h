// Memory that starts over in a forked child. Everything a process knows about itself (its slot, its
// allocations) is wrong in a child, which owns nothing; such state lives here and reads as zero
// there. Covers fork and raw clone; a vfork or posix_spawn child shares its parent's memory and
// only execs. Must not know what it holds.
#pragma once

#include <stddef.h>
#include <string.h>

#include <algorithm>

namespace gpufence {

// Zeroed pages, zero again in every forked child. Null when the system gives no memory.
// Costs a system call: for what is made once, or grows by doubling.
void* MapWipedOnFork(size_t bytes);

// Gives back what MapWipedOnFork returned.
void UnmapWipedOnFork(void* address, size_t bytes);

// Room for elements that grows by doubling: for lists as long as a program made them.
template <typename Element>
class Room {
 public:
  Room() = default;
  ~Room() {
    if (elements_ != nullptr) UnmapWipedOnFork(elements_, room_ * sizeof(Element));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // For so many; what was never written is zero. False: no memory.
  bool Reserve(size_t wanted) {
    if (wanted <= room_) return true;
    const size_t room = std::max(wanted, std::max(room_ * 2, size_t{4096} / sizeof(Element)));
    void* memory = MapWipedOnFork(room * sizeof(Element));
    if (memory == nullptr) return false;
    if (elements_ != nullptr) {
      memcpy(memory, elements_, used_ * sizeof(Element));
      UnmapWipedOnFork(elements_, room_ * sizeof(Element));
    }
    elements_ = static_cast<Element*>(memory);
    room_ = room;
    return true;
  }

  bool Push(const Element& element) {
    if (!Reserve(used_ + 1)) return false;
    elements_[used_++] = element;
    return true;
  }

  Element* begin() { return elements_; }
  Element* end() { return elements_ + used_; }
  size_t size() const { return used_; }
  void Shorten(size_t used) { used_ = used; }

 private:
  Element* elements_ = nullptr;
  size_t room_ = 0;
  size_t used_ = 0;
};

}  // namespace gpufence
