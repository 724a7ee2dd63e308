// The status of a driver's first call in a program that loads no driver itself: only a preloaded
// library gives it the name. -1: nobody does.
// usage: library_path cuda|nvml
#include <stdio.h>
#include <string.h>

extern "C" {
[[gnu::weak]] int cuInit(unsigned flags);
[[gnu::weak]] int nvmlInit_v2();
}

int main(int argc, char** argv) {
  int status = -1;
  if (argc == 2 && strcmp(argv[1], "cuda") == 0 && cuInit != nullptr) status = cuInit(0);
  if (argc == 2 && strcmp(argv[1], "nvml") == 0 && nvmlInit_v2 != nullptr) status = nvmlInit_v2();
  printf("%d\n", status);
  return 0;
}
