#include "addpath/path_list.h"

#include <stdint.h>
#include <string.h>

namespace addpath {
namespace {

struct Component {
  const char* start;
  size_t length;
};

bool Same(Component one, Component other) {
  return one.length == other.length && memcmp(one.start, other.start, one.length) == 0;
}

// Walks a list; an empty text has no component, and of two separators in a row the middle is empty.
class Walk {
 public:
  Walk(const char* list, const char* separators) : next_(list), separators_(separators) {}

  bool Next(Component* component) {
    if (next_ == nullptr || (!began_ && *next_ == '\0')) return false;
    began_ = true;
    const char* end = next_;
    while (*end != '\0' && *end != separators_[0] && *end != separators_[1]) ++end;
    *component = {next_, static_cast<size_t>(end - next_)};
    next_ = *end == '\0' ? nullptr : end + 1;
    return true;
  }

 private:
  const char* next_;
  const char* separators_;
  bool began_ = false;
};

// Whether the list has it among its first `most` components.
bool Has(const char* list, const char* separators, Component wanted, size_t most) {
  Walk walk(list, separators);
  Component component;
  for (size_t i = 0; i < most && walk.Next(&component); ++i) {
    if (Same(component, wanted)) return true;
  }
  return false;
}

class Writer {
 public:
  explicit Writer(char* out) : start_(out), next_(out) {}

  void Put(Component component) {
    if (next_ != start_) *next_++ = ':';
    memcpy(next_, component.start, component.length);
    next_ += component.length;
  }

  void End() { *next_ = '\0'; }

 private:
  char* start_;
  char* next_;
};

}  // namespace

bool Join(const char* target, const char* source, const char* separators, Side side, char* out) {
  const Component whole = {target, strlen(target)};
  Writer writer(out);
  if (side == Side::kBack && whole.length > 0) writer.Put(whole);
  Walk walk(source, separators);
  Component component;
  bool lacking = false;
  for (size_t i = 0; i < kMostComponents && walk.Next(&component); ++i) {
    if (component.length == 0 || Has(target, separators, component, SIZE_MAX) ||
        Has(source, separators, component, i)) {
      continue;
    }
    writer.Put(component);
    lacking = true;
  }
  if (side == Side::kFront && whole.length > 0) writer.Put(whole);
  writer.End();
  return lacking;
}

}  // namespace addpath
