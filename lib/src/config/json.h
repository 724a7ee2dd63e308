// A strict reader of one JSON object of whole numbers: {"0": 2147483648, "GPU-…": 1}.
// Takes what JSON allows inside that shape and nothing else; allocates nothing.
#pragma once

#include <stdint.h>

#include <string_view>

namespace gpufence {

// Walks over `text`, member by member.
class JsonNumbers {
 public:
  enum class Step : uint8_t {
    kMember,
    kEnd,
    kBroken,    // not JSON, or not this shape: nested, negative, fraction, escape, trailing text
    kTooLarge,  // a number above 2^63 - 1
  };

  explicit JsonNumbers(std::string_view text) : rest_(text) {}

  // The next member. After anything but kMember the reader is done.
  Step Next(std::string_view* key, uint64_t* number);

 private:
  void SkipBlanks();
  bool Take(char character);
  bool TakeKey(std::string_view* key);
  Step TakeNumber(uint64_t* number);
  Step Finish();

  std::string_view rest_;
  bool started_ = false;
};

}  // namespace gpufence
