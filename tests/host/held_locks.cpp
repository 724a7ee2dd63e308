// The rule about locks, as a build checks it that ends programs which break it.
// flags: -DGPUFENCE_CHECK_LOCKS
// sources: base/forked.cpp
//
//   held_locks none|spin|futex|counted     checks a driver call with such a lock held
#include "base/held_locks.h"

#include <stdio.h>
#include <string.h>

#include <new>

#include "base/futex.h"
#include "base/locks.h"

int main(int argc, char** argv) {
  static constinit gpufence::SpinLock spin;
  static constinit gpufence::FutexLock futex;
  const char* held = argc > 1 ? argv[1] : "";
  {
    const gpufence::SpinGuard left(&spin);
    const gpufence::FutexGuard left_too(&futex);
    const gpufence::CountedLock left_as_well;
  }
  if (strcmp(held, "spin") == 0) spin.Lock();
  if (strcmp(held, "futex") == 0) futex.Lock();
  const gpufence::CountedLock* counted = nullptr;
  if (strcmp(held, "counted") == 0) {
    alignas(gpufence::CountedLock) static unsigned char place[sizeof(gpufence::CountedLock)];
    counted = new (place) gpufence::CountedLock;
  }
  gpufence::ExpectNoLock("cuMemAlloc_v2");
  printf("{\"called\": 1}\n");
  return counted != nullptr ? 1 : 0;
}
