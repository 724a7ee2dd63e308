// Yield points: places in a stream at which the GPU reads a word of the host's memory before it
// goes on, so that what is queued behind stops for somebody of higher priority. Hold points: the
// same until what is owed is paid. Here those words, two for each context, and one for each stream
// that the GPU writes when it comes to a yield point. Must not know who is of higher priority, what
// is owed, or CUDA.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

// Zeroed memory is ready for use. One thread at a time opens and closes; any reads.
class YieldPoints {
 public:
  static constexpr uint32_t kMostContexts = 64;
  static constexpr uint32_t kMostDevices = 64;
  static constexpr uint32_t kMostStreams = 2048;
  static constexpr uint64_t kContextBytes = 3 * 4096;  // what a context can be given

  // The GPU goes on while the context's word, as a signed number, is no less than this.
  static constexpr uint32_t kGoesOn = 0;
  // What it writes into a stream's word when it comes to a point, and when it goes on behind it.
  static constexpr uint32_t kCame = 1;
  static constexpr uint32_t kWent = 0;

  // Gets memory for the words, which stays to the process's end: the GPU may read it until then. A
  // forked child has none of it. False: there is none to be had.
  bool Map();

  // The words of a context, its own in front, which is read from now on; null before Map.
  void* GiveWords(uint32_t context, uint32_t ordinal);
  // Where a stream's word is behind that.
  static constexpr uint64_t BytesTo(uint32_t stream) { return (1 + stream) * sizeof(uint32_t); }

  // Where the word for hold points is.
  static constexpr uint64_t kBytesToHold = (1 + kMostStreams) * sizeof(uint32_t);

  // What comes to a point of the device stands there, which may be said again. Or, where it was
  // closed, it goes on.
  void Close(uint32_t ordinal);
  void Open(uint32_t ordinal);

  bool IsClosed(uint32_t ordinal) const { return ChangesOf(ordinal) % 2 != 0; }
  // How often it was closed and opened.
  uint32_t ChangesOf(uint32_t ordinal) const {
    return changes_[ordinal % kMostDevices].load(std::memory_order_relaxed);
  }

  // Whether the stream is at a point: for a moment on its way, or because that is closed, or was
  // and the GPU has not come to it since.
  bool IsAtPoint(uint32_t context, uint32_t stream) const {
    return pages_ != nullptr &&
           WordsOf(context)[1 + stream].load(std::memory_order_acquire) == kCame;
  }

  // ---- hold points ----
  //
  // They have numbers, and the GPU goes on at one when the word is no less, as numbers that wrap
  // around. One at most is closed, all others are open. Any thread closes and opens them.

  // Closes the next one, unless one is closed. Its number.
  uint32_t CloseHold(uint32_t ordinal);
  // Opens the one that is closed, if any.
  void OpenHold(uint32_t ordinal);
  // What is put into streams from now on, or was just now, is open.
  void OpenHoldsForGood(uint32_t ordinal);

  bool IsHoldClosed(uint32_t ordinal) const { return HoldOf(ordinal).IsClosed(); }
  // Whether the point of that number is the closed one.
  bool IsHoldClosed(uint32_t ordinal, uint32_t number) const {
    return HoldOf(ordinal).IsClosed() && HoldOf(ordinal).last.load() == number;
  }

 private:
  static constexpr uint32_t kStands = 1u << 31;  // below kGoesOn

  struct Hold {
    std::atomic<uint32_t> last;  // the newest one's number ...
    std::atomic<uint32_t> open;  // ... which is closed unless this is as much

    bool IsClosed() const { return last.load() != open.load(); }
  };

  Hold& HoldOf(uint32_t ordinal) { return holds_[ordinal % kMostDevices]; }
  const Hold& HoldOf(uint32_t ordinal) const { return holds_[ordinal % kMostDevices]; }
  void OpenHoldsUpTo(uint32_t ordinal, uint32_t number);

  void Write(uint32_t ordinal, uint32_t word);
  std::atomic<uint32_t>* WordsOf(uint32_t context) const {
    return reinterpret_cast<std::atomic<uint32_t>*>(pages_ + context * kContextBytes);
  }
  template <typename Visit>
  void ForEachOf(uint32_t ordinal, Visit visit) const {
    for (uint32_t i = 0; i < kMostContexts; ++i) {
      if (ordinals_[i].load() == ordinal + 1) visit(WordsOf(i));
    }
  }

  char* pages_;                                    // null: none
  std::atomic<uint32_t> ordinals_[kMostContexts];  // and one; 0: it reads no word
  std::atomic<uint32_t> changes_[kMostDevices];
  Hold holds_[kMostDevices];
};

static_assert(YieldPoints::kBytesToHold + sizeof(uint32_t) <= YieldPoints::kContextBytes);

}  // namespace gpufence
