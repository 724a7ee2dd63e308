// link: cuda
// Allocates and frees at random, without a pause, until told otherwise on stdin; made to be killed.
//
//   kill_worker SEED
//
//   stand     finishes the call it is in and says "holds CODE BYTES", as charged; then waits for
//   full      asks for more than any limit, so that the dead are looked for: "full CODE"
//   go        goes on
#include <poll.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "sim_program.h"

namespace {

constexpr uint64_t kChunk = 2 * simtest::kMiB;
constexpr size_t kMostPieces = 40;

struct Piece {
  CUdeviceptr address;
  uint64_t bytes;
};

uint64_t state = 1;

uint64_t Below(uint64_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % bound;
}

bool IsSmall(uint64_t bytes) { return bytes <= simtest::kMiB; }

uint64_t RoundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

uint64_t Charge(const std::vector<Piece>& pieces) {
  uint64_t small = 0;
  uint64_t large = 0;
  for (const Piece& piece : pieces) {
    if (IsSmall(piece.bytes)) {
      small += RoundUp(piece.bytes, 512);
    } else {
      large += RoundUp(piece.bytes, kChunk);
    }
  }
  return RoundUp(small, kChunk) + large;
}

void Answer(const char* word, int code, uint64_t bytes) {
  printf("%s %d %llu\n", word, code, static_cast<unsigned long long>(bytes));
  fflush(stdout);
}

// Obeys whatever is waiting; stands still from "stand" to "go". False at the end of stdin.
bool Obey(const std::vector<Piece>& pieces, int worst) {
  for (bool stands = false;;) {
    pollfd in = {STDIN_FILENO, POLLIN, 0};
    if (poll(&in, 1, stands ? -1 : 0) <= 0) return true;
    std::string line;
    for (char letter = 0; letter != '\n'; line += letter) {
      if (read(STDIN_FILENO, &letter, 1) != 1) return false;
    }
    if (line == "stand\n") {
      stands = true;
      Answer("holds", worst, Charge(pieces));
    } else if (line == "full\n") {
      CUdeviceptr address = 0;
      Answer("full", cuMemAlloc_v2(&address, uint64_t{1} << 40), 0);
    } else {
      stands = false;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  state = strtoull(argv[1], nullptr, 10) * 0x9e3779b97f4a7c15u + 1;
  MUST(cuInit(0));
  CUcontext context = nullptr;
  CUresult made = CUDA_ERROR_OUT_OF_MEMORY;
  // The others may hold all there is for a moment.
  for (int i = 0; i < 10000 && made == CUDA_ERROR_OUT_OF_MEMORY; ++i) {
    if (i > 0) usleep(2000);
    made = cuCtxCreate_v2(&context, 0, 0);
  }
  simtest::Must(made, "cuCtxCreate_v2");
  printf("ready\n");
  fflush(stdout);
  std::vector<Piece> pieces;
  int worst = 0;  // a code that is neither success nor "out of memory"
  pollfd in = {STDIN_FILENO, POLLIN, 0};
  poll(&in, 1, -1);
  while (Obey(pieces, worst)) {
    CUresult rc = CUDA_SUCCESS;
    if (pieces.size() < kMostPieces && Below(2) == 0) {
      const uint64_t bytes = 1 + Below(Below(2) == 0 ? 12 * simtest::kMiB : simtest::kMiB);
      CUdeviceptr address = 0;
      rc = cuMemAlloc_v2(&address, bytes);
      if (rc == CUDA_SUCCESS) pieces.push_back({address, bytes});
    } else if (!pieces.empty()) {
      std::swap(pieces[Below(pieces.size())], pieces.back());
      rc = cuMemFree_v2(pieces.back().address);
      pieces.pop_back();
    }
    if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY) worst = rc;
  }
  return 0;
}
