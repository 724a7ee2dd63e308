// A growable array of plain values on malloc: std::vector without libstdc++ and without exceptions.
//
// Owns its storage.  Must not hold anything with a constructor or destructor.
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

namespace sim {

// All-zero bytes are a valid empty Vec, so it may live in objects that tables hand out zeroed.
// Whoever owns one calls Free(): there is no destructor, because those objects have none.
template <typename T>
class Vec {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  T& back() { return data_[size_ - 1]; }

  // False when memory is exhausted; nothing is changed then.
  bool Reserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    const size_t grown = capacity_ * 2 > capacity ? capacity_ * 2 : (capacity < 8 ? 8 : capacity);
    void* moved = realloc(static_cast<void*>(data_), grown * sizeof(T));
    if (moved == nullptr) return false;
    data_ = static_cast<T*>(moved);
    capacity_ = grown;
    return true;
  }

  bool Push(const T& value) { return Insert(size_, value); }

  // Inserts before `index` (0 to size).
  bool Insert(size_t index, const T& value) {
    const T copy = value;  // `value` may lie inside the storage that moves
    if (!Reserve(size_ + 1)) return false;
    memmove(static_cast<void*>(data_ + index + 1), static_cast<const void*>(data_ + index),
            (size_ - index) * sizeof(T));
    data_[index] = copy;
    ++size_;
    return true;
  }

  void Erase(size_t index) {
    --size_;
    memmove(static_cast<void*>(data_ + index), static_cast<const void*>(data_ + index + 1),
            (size_ - index) * sizeof(T));
  }

  void Pop() { --size_; }
  void Clear() { size_ = 0; }

  void Free() {
    free(static_cast<void*>(data_));
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  T* data_;
  size_t size_;
  size_t capacity_;
};

}  // namespace sim
