// What a probing program learns about names: [handle mode] NAME... -> JSON of found / dlerror.
// flags: -rdynamic
// Modes: default, next, self (the program's handle), or a library to open.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  void* handle = RTLD_DEFAULT;
  if (argc < 3) return 2;
  if (strcmp(argv[1], "next") == 0) {
    handle = RTLD_NEXT;
  } else if (strcmp(argv[1], "self") == 0) {
    handle = dlopen(NULL, RTLD_NOW);
  } else if (strcmp(argv[1], "default") != 0) {
    handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
      printf("{\"open\": false}\n");
      return 0;
    }
  }
  printf("{");
  for (int i = 2; i < argc; ++i) {
    dlerror();
    void* found = dlsym(handle, argv[i]);
    const char* error = dlerror();
    printf("%s\"%s\": {\"found\": %s, \"error\": %s}", i > 2 ? ", " : "", argv[i],
           found != NULL ? "true" : "false", error != NULL ? "true" : "false");
  }
  printf("}\n");
  return 0;
}
