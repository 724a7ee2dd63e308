// A strict walk over JSON text of any shape (RFC 8259), for answers of which few members matter.
// Bounded in depth, allocates nothing. Must not know what the members mean.
#pragma once

#include <stdint.h>

#include <string_view>

namespace gpufence {

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
