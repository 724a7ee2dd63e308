// Two strict readers of JSON (RFC 8259): one of an object of whole numbers, one that walks over
// text of any shape, for answers of which few members matter. Bounded in depth, allocate nothing.
// Must not know what the members mean.
#pragma once

#include <stdint.h>

#include <string_view>

namespace gpufence {

// A reader of one object of whole numbers: {"0": 2147483648, "GPU-…": 1}. Takes what JSON allows
// inside that shape and nothing else.
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
  bool TakeKey(std::string_view* key);
  Step TakeNumber(uint64_t* number);
  Step Finish();

  std::string_view rest_;
  bool started_ = false;
};

// Each takes one thing off the beginning of `rest`, with the blanks before it; false: it is not
// there. A text is what stands between the quotes, its escapes checked and left as they are.
bool TakeJsonText(std::string_view* rest, std::string_view* text);
bool SkipJsonValue(std::string_view* rest);

// Whether nothing but blanks is left.
bool JsonEnds(std::string_view rest);

// The members of an object, or the items of an array, that begins at `rest`. After kMember the
// caller takes the value off `rest` before it asks for the next.
class JsonMembers {
 public:
  enum class Step : uint8_t { kMember, kEnd, kBroken };
  enum class Kind : uint8_t { kObject, kArray };

  JsonMembers(Kind kind, std::string_view* rest) : rest_(rest), kind_(kind) {}

  Step Next(std::string_view* key);

 private:
  std::string_view* rest_;
  Kind kind_;
  bool started_ = false;
};

}  // namespace gpufence
