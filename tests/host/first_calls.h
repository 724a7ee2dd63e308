// What the program and its plugin share: the call that both make first, and where they meet.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

#include "driver_abi.h"

namespace firstcalls {

struct Meeting {
  const char* call;
  std::atomic<bool> in_constructor;  // the loader's lock is held
  std::atomic<pid_t> caller;         // the other thread, about to make the call
  std::atomic<int> made;             // by both
};

// The plugin finds it by its address.
inline constexpr char kVariable[] = "FIRST_CALLS_MEETING";

// Any answer is right: what counts is that there is one.
inline void Make(Meeting* meeting) {
  if (strcmp(meeting->call, "cuInit") == 0) {
    cuInit(0);
  } else if (strcmp(meeting->call, "cuMemAlloc") == 0) {
    CUdeviceptr address = 0;
    cuMemAlloc_v2(&address, 1 << 20);
  } else {
    nvmlInit_v2();
  }
  meeting->made.fetch_add(1);
}

}  // namespace firstcalls
