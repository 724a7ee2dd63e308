// link: cuda
// What a limit leaves: the code of cuInit, then for every device how many pieces of 64 MiB it
// grants (at most 4 GiB), with the code of the first refusal.
#include "sim_program.h"

int main() {
  using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers
  constexpr uint64_t kPieceBytes = 64 * kMiB;
  constexpr int kMostPieces = 64;
  Facts facts;
  const CUresult init = cuInit(0);
  facts.Code("init", init);
  if (init != CUDA_SUCCESS) return 0;
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  for (int device = 0; device < count; ++device) {
    UseDevice(device);
    CUdeviceptr piece = 0;
    CUresult refused = CUDA_SUCCESS;
    int pieces = 0;
    for (; pieces < kMostPieces; ++pieces) {
      refused = cuMemAlloc_v2(&piece, kPieceBytes);
      if (refused != CUDA_SUCCESS) break;
    }
    char name[32];
    snprintf(name, sizeof name, "granted %d", device);
    facts.Say(name, pieces * kPieceBytes);
    snprintf(name, sizeof name, "refused %d", device);
    facts.Code(name, refused);
  }
  return 0;
}
