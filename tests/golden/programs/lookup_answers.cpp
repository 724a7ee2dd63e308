// Answers questions about lookup.h, one a line of stdin:
//   NAME                                  the symbol of that name, or -
//   BASE VERSION PER_THREAD DRIVER        what cuGetProcAddress means, in a driver that has the
//                                         symbols first listed no later than position DRIVER
#include <stdio.h>
#include <string.h>

#include "sim_symbols.h"

namespace {

constexpr const char* kWords[] = {"found", "unknown", "too low"};

void Answer(const char* question) {
  char base[200];
  unsigned version = 0;
  int per_thread = 0;
  int driver = 0;
  if (sscanf(question, "%199s %u %d %d", base, &version, &per_thread, &driver) != 4) {
    const gpufence::Sym sym = gpufence::FindSym(question);
    puts(sym != gpufence::kNoSym ? gpufence::kSymInfo[sym].name : "-");
    return;
  }
  const gpufence::Variant found = gpufence::FindVariant(
      base, version, per_thread != 0,
      [driver](gpufence::Sym sym) { return sim::kPresence[sym].first <= driver; });
  puts(found.sym != gpufence::kNoSym ? gpufence::kSymInfo[found.sym].name
                                     : kWords[static_cast<int>(found.status)]);
}

}  // namespace

int main() {
  char line[256];
  while (fgets(line, sizeof(line), stdin) != nullptr) {
    line[strcspn(line, "\n")] = '\0';
    Answer(line);
  }
}
