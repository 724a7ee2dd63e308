// flags: -pthread
// Many threads make the process's first driver calls at the same moment, through every door.
// Prints the number of threads whose answers were all right.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>

#include "driver_abi.h"

static std::atomic<int> ready{0};
static std::atomic<int> right{0};
static int thread_count;

static void* Run(void* seed) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ready.fetch_add(1);
  while (ready.load() < thread_count) {
  }
  auto version =
      reinterpret_cast<decltype(&cuDriverGetVersion)>(dlsym(driver, "cuDriverGetVersion"));
  auto proc = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(driver, "cuGetProcAddress"));
  void* again = nullptr;
  int first = 0;
  const bool fine = version != nullptr && proc != nullptr && version(&first) == CUDA_SUCCESS &&
                    proc("cuDriverGetVersion", &again, 12000, 0) == CUDA_SUCCESS &&
                    again == reinterpret_cast<void*>(version) && first >= 11000;
  if (fine) right.fetch_add(1);
  return seed;
}

int main(int argc, char** argv) {
  thread_count = argc > 1 ? atoi(argv[1]) : 8;
  pthread_t threads[64];
  for (int i = 0; i < thread_count; ++i) pthread_create(&threads[i], nullptr, Run, nullptr);
  for (int i = 0; i < thread_count; ++i) pthread_join(threads[i], nullptr);
  printf("%d\n", right.load());
  return 0;
}
