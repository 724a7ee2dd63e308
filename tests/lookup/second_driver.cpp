// link: cuda
// flags: -Wl,-z,lazy
// Looks functions of the driver up in a second copy of its file, loaded behind the first.
//
//   second_driver PATH NAMES    NAMES: a file with one name a line
//
// Prints JSON: how many of the names there are, and how many lead elsewhere than in the first copy.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "support/sim_program.h"

int main(int argc, char** argv) {
  if (argc != 3 || cuInit(0) != CUDA_SUCCESS) return 1;
  void* first = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* second = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  FILE* names = fopen(argv[2], "r");
  if (first == nullptr || second == nullptr || first == second || names == nullptr) return 1;
  int found = 0;
  int differ = 0;
  char name[256];
  while (fscanf(names, "%255s", name) == 1) {
    const void* address = dlsym(second, name);
    const bool is_debuggers = strncmp(name, "cudbg", 5) == 0;  // it must reach each copy's own
    if (address == nullptr || is_debuggers) continue;
    ++found;
    if (address != dlsym(first, name)) ++differ;
  }
  fclose(names);
  simtest::Facts facts;
  facts.Say("found", found);
  facts.Say("differ", differ);
  return 0;
}
