// Whose a function is that a program finds, by each way of the loader.
//
//   lookup_objects NAMES LIBRARY     NAMES: one a line
//
// For each name that is found: NAME, and the file of what four calls find. They are dlsym on the
// handle, over the global scope and from the next library on, and dlvsym for a version that no
// driver has; "-" for nothing.
// flags: -D_GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace {

const char* ObjectOf(void* address) {
  Dl_info info{};
  if (address == nullptr) return "-";
  if (dladdr(address, &info) == 0) return "?";
  const char* slash = strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

}  // namespace

int main(int argc, char** argv) {
  FILE* names = argc == 3 ? fopen(argv[1], "r") : nullptr;
  void* library = names != nullptr ? dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) : nullptr;
  if (library == nullptr) {
    fprintf(stderr, "lookup_objects: %s\n", names != nullptr ? dlerror() : "NAMES LIBRARY");
    return 2;
  }
  char name[256];
  while (fgets(name, sizeof name, names) != nullptr) {
    name[strcspn(name, "\n")] = '\0';
    void* found = dlsym(library, name);
    if (found == nullptr && dlsym(RTLD_DEFAULT, name) == nullptr) continue;
    printf("%s %s", name, ObjectOf(found));
    printf(" %s", ObjectOf(dlsym(RTLD_DEFAULT, name)));
    printf(" %s", ObjectOf(dlsym(RTLD_NEXT, name)));
    printf(" %s\n", ObjectOf(dlvsym(library, name, "NOBODY_1.0")));
  }
  return 0;
}
