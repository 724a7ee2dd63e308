// libgpufence-addpath.so: adds paths to PATH, LD_PRELOAD and LD_LIBRARY_PATH of the program that it
// is preloaded into, and so of that program's children. The variables are vgpu.rs's.
//
// Runs once, before main and perhaps before malloc is ready: no allocation by the C library, no
// output, no file, no lock. Whatever fails leaves the variable as it was.
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>

#include "addpath/path_list.h"

namespace addpath {
namespace {

struct Step {
  const char* target;
  const char* source;
  const char* separators;
  Side side;
};

// In vgpu.rs's order: a path that both a source and its TF_PREPEND_ twin name comes last. What
// parts a list is the loader's rule (ld.so(8)) and, for PATH, the shell's.
constexpr Step kSteps[] = {
    {"PATH", "TF_PATH", ":", Side::kBack},
    {"LD_PRELOAD", "TF_LD_PRELOAD", ": ", Side::kBack},
    {"LD_LIBRARY_PATH", "TF_LD_LIBRARY_PATH", ":;", Side::kBack},
    {"PATH", "TF_PREPEND_PATH", ":", Side::kFront},
    {"LD_PRELOAD", "TF_PREPEND_LD_PRELOAD", ": ", Side::kFront},
    {"LD_LIBRARY_PATH", "TF_PREPEND_LD_LIBRARY_PATH", ":;", Side::kFront},
};

// The entry "NAME=…" of the environment, or null.
char** Find(const char* name) {
  const size_t length = strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return entry;
  }
  return nullptr;
}

const char* TextOf(char** entry) { return strchr(*entry, '=') + 1; }

// What is put to use is never given back: the environment may be read to the end of the process.
void* Map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// The environment with one entry more.
void Append(char* text) {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  auto** grown = static_cast<char**>(Map((count + 2) * sizeof(char*)));
  if (grown == nullptr) return;
  if (count > 0) memcpy(grown, environ, count * sizeof(char*));
  grown[count] = text;
  environ = grown;
}

void Take(const Step& step) {
  char** source = Find(step.source);
  if (source == nullptr) return;
  char** target = Find(step.target);
  const char* old_text = target == nullptr ? "" : TextOf(target);
  const size_t name_bytes = strlen(step.target) + 1;
  const size_t bytes = name_bytes + strlen(old_text) + strlen(TextOf(source)) + 2;
  auto* text = static_cast<char*>(Map(bytes));
  if (text == nullptr) return;
  memcpy(text, step.target, name_bytes - 1);
  text[name_bytes - 1] = '=';
  if (!Join(old_text, TextOf(source), step.separators, step.side, text + name_bytes)) {
    munmap(text, bytes);
  } else if (target != nullptr) {
    *target = text;
  } else {
    Append(text);
  }
}

// The loader takes LD_PRELOAD away from a privileged program, so that whoever starts it cannot
// reach into what it starts; and /etc/ld.so.preload brings us into it all the same.
[[gnu::constructor]] void AddPaths() {
  if (getauxval(AT_SECURE) != 0) return;
  for (const Step& step : kSteps) Take(step);
}

}  // namespace
}  // namespace addpath
