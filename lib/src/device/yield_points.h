// Yield points: places in a stream at which the GPU reads a word of the host's memory before it
// goes on, so that what is queued behind stops for somebody of higher priority. Here the words, one
// for each context. Must not know streams, who is of higher priority, or CUDA.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

// Zeroed memory is ready for use. One thread at a time opens and closes; any reads.
class YieldPoints {
 public:
  static constexpr uint32_t kMostContexts = 64;
  static constexpr uint32_t kMostDevices = 64;
  static constexpr uint64_t kPageBytes = 4096;  // what a context can be given to read

  // The GPU goes on while the word, as a signed number, is no less than this.
  static constexpr uint32_t kGoesOn = 0;

  // Gets memory for the words, which stays to the process's end: the GPU may read it until then. A
  // forked child has none of it. False: there is none to be had.
  bool Map();

  // The page with a context's word in front, which it reads from now on; null before Map.
  void* GiveWord(uint32_t context, uint32_t ordinal);

  // What comes to a point of the device stands there; or goes on. Both may be said again.
  void Close(uint32_t ordinal);
  void Open(uint32_t ordinal);

  bool IsClosed(uint32_t ordinal) const { return ChangesOf(ordinal) % 2 != 0; }
  // How often it was closed and opened.
  uint32_t ChangesOf(uint32_t ordinal) const {
    return changes_[ordinal % kMostDevices].load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kStands = 1u << 31;  // below kGoesOn

  void Write(uint32_t ordinal, uint32_t word);
  std::atomic<uint32_t>* WordOf(uint32_t context) const {
    return reinterpret_cast<std::atomic<uint32_t>*>(pages_ + context * kPageBytes);
  }

  char* pages_;                                    // null: none
  std::atomic<uint32_t> ordinals_[kMostContexts];  // and one; 0: it reads no word
  std::atomic<uint32_t> changes_[kMostDevices];
};

}  // namespace gpufence
