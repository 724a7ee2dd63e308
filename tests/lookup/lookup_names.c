// flags: -D_GNU_SOURCE
// Which names the loader finds in a library, in every way it can be asked.
//
//   lookup_names NAMES LIBRARY     NAMES: one a line; prints those that are found
//
// A name counts as found only if all ways agree; one that they see differently is printed with "?".
// The ways: dlsym on the handle, dlsym over the global scope, dladdr from the address back.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char* Judge(void* library, const char* name) {
  void* by_handle = dlsym(library, name);
  void* by_scope = dlsym(RTLD_DEFAULT, name);
  if (by_handle == NULL && by_scope == NULL) return NULL;
  if (by_handle != by_scope) return "?";
  Dl_info info;
  const int known = dladdr(by_handle, &info);
  return known != 0 && info.dli_sname != NULL && strcmp(info.dli_sname, name) == 0 ? "" : "?";
}

int main(int argc, char** argv) {
  FILE* names = argc == 3 ? fopen(argv[1], "r") : NULL;
  if (names == NULL) {
    fprintf(stderr, "usage: lookup_names NAMES LIBRARY\n");
    return 2;
  }
  void* library = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "lookup_names: %s\n", dlerror());
    return 1;
  }
  char name[256];
  while (fgets(name, sizeof(name), names) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    const char* verdict = Judge(library, name);
    if (verdict != NULL) printf("%s%s\n", name, verdict);
  }
  return 0;
}
