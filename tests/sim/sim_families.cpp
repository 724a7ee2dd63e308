// link: cuda
// How much device memory a family takes, and what is left of it.
//
//   sim_families cycle FAMILY BYTES    {"held": .., "left": .., "given_with_context": ..}
//   sim_families hold FAMILY BYTES     prints "held PID", then for each line the bytes in use
//   sim_families fill FAMILY STEP      waits for a line, takes STEP bytes until refused, prints
//                                      {"granted": .., "code": ..}, waits for a line
#include "support/sim_families.h"

#include <unistd.h>

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

void Cycle(const Family& family, uint64_t bytes) {
  const bool is_low = strcmp(family.name, "low") == 0;
  const CUcontext context = is_low ? UseDeviceIn32Bits(0) : UseDevice(0);
  const uint64_t empty_bytes = UsedBytes();
  Held held = {};
  Facts facts;
  MUST(family.take(bytes, &held));
  facts.Say("held", UsedBytes() - empty_bytes);
  MUST(family.give(held));
  facts.Say("left", UsedBytes() - empty_bytes);
  // Once more, but its end is the context's.
  MUST(family.take(bytes, &held));
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, 0));
  const uint64_t context_bytes = UsedBytes();
  MUST(cuCtxDestroy_v2(context));
  facts.Say("given_with_context", context_bytes - UsedBytes());
  MUST(cuCtxDestroy_v2(other));
}

void Hold(const Family& family, uint64_t bytes) {
  UseDevice(0);
  Held held = {};
  MUST(family.take(bytes, &held));
  printf("held %d\n", static_cast<int>(getpid()));
  fflush(stdout);
  while (AwaitLine()) {
    printf("%llu\n", static_cast<unsigned long long>(UsedBytes()));
    fflush(stdout);
  }
}

void Fill(const Family& family, uint64_t step_bytes) {
  UseDevice(0);
  printf("ready\n");
  fflush(stdout);
  AwaitLine();
  uint64_t granted_bytes = 0;
  CUresult rc = CUDA_SUCCESS;
  while (true) {
    Held held = {};
    rc = family.take(step_bytes, &held);
    if (rc != CUDA_SUCCESS) break;
    granted_bytes += step_bytes;
  }
  {
    Facts facts;
    facts.Say("granted", granted_bytes);
    facts.Code("code", rc);
  }
  AwaitLine();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const Family& family = FamilyNamed(argv[2]);
  const uint64_t bytes = strtoull(argv[3], nullptr, 10);
  if (strcmp(argv[1], "cycle") == 0) {
    Cycle(family, bytes);
  } else if (strcmp(argv[1], "hold") == 0) {
    Hold(family, bytes);
  } else {
    Fill(family, bytes);
  }
  return 0;
}
