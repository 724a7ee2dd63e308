// sources: state/identity.cpp state/owner.cpp policy/turn.cpp policy/share.cpp
// Prints words of shared files that hold several numbers, and the hash of a container's name, as
// the library makes them. Where words stand is one list for both (lib/layouts/shared_files.txt).
#include <stdio.h>

#include "policy/turn.h"
#include "state/identity.h"
#include "state/time_file.h"

int main() {
  using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program
  const SeatTerms terms = {.rank = kHighestRank, .weight = 300, .floor = 5'000, .burst_ns = 0};
  printf(
      "{\"turn\": %llu, \"free_turn\": %llu, \"shares\": %llu, \"terms\": %llu, \"hash\": %llu}\n",
      static_cast<unsigned long long>(PackTurn({5, true, 123456789})),
      static_cast<unsigned long long>(PackTurn({kNoTenant, false, 7})),
      static_cast<unsigned long long>(PackShares({30'000, 60'000})),
      static_cast<unsigned long long>(PackTerms(terms)),
      static_cast<unsigned long long>(HashText("web-1")));
  return 0;
}
