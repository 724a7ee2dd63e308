// link: cuda
// Takes and gives back memory of every family at random, without a pause, until told otherwise on
// stdin; made to be killed and stopped.
//
//   kill_worker SEED
//
//   stand     finishes the call it is in, lets pools go of what they do not use, and says
//             "holds CODE BYTES GRANTED REFUSED": as charged; then waits for
//   full      asks for more than any limit, so that the dead are looked for: "full CODE"
//   empty     gives everything back: "empty CODE"
//   go        goes on
#include <poll.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "support/sim_families.h"

namespace {

using simtest::kMiB;

constexpr uint64_t kChunk = 2 * kMiB;
constexpr size_t kMostPieces = 40;

// How a family's bytes are charged: `linear` pieces that do not fill a chunk share chunks, which
// their addresses tell; `whole` shares none; `pool` is charged what the pool has reserved,
// `overhead` is no allocation's.
enum class Charge { kLinear, kWhole, kPool, kOverhead };

struct Kind {
  const char* family;  // of sim_families.h
  uint64_t step;       // sizes are multiples of it: what the family takes is then what it is asked
  Charge charge;
};
constexpr Kind kKinds[] = {
    {"linear", 1, Charge::kLinear},
    {"linear", 1, Charge::kLinear},
    {"pitch", 64 * 1024, Charge::kLinear},
    {"managed", kChunk, Charge::kWhole},
    {"virtual", kChunk, Charge::kWhole},
    {"array2d", kChunk, Charge::kWhole},
    {"layered", kChunk, Charge::kWhole},
    {"async", 1, Charge::kPool},
    {"async_freed_plainly", 1, Charge::kPool},
    {"context", 1, Charge::kOverhead},
};
constexpr uint64_t kKindCount = sizeof kKinds / sizeof kKinds[0];

struct Piece {
  const Kind* kind;
  uint64_t bytes;
  simtest::Held held;
};

uint64_t state = 1;
std::vector<Piece> pieces;
int worst = 0;  // a code that is neither success nor "out of memory"
uint64_t granted = 0;
uint64_t refused = 0;

uint64_t Below(uint64_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % bound;
}

uint64_t RoundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

void Note(CUresult rc) {
  if (rc == CUDA_SUCCESS) {
    ++granted;
  } else if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
    ++refused;
  } else {
    worst = rc;
  }
}

void Take() {
  const Kind& kind = kKinds[Below(kKindCount)];
  const uint64_t most = Below(2) == 0 ? 12 * kMiB : kMiB;
  Piece piece = {&kind, RoundUp(1 + Below(most), kind.step), {}};
  const CUresult rc = simtest::FamilyNamed(kind.family).take(piece.bytes, &piece.held);
  Note(rc);
  if (rc == CUDA_SUCCESS) pieces.push_back(piece);
}

void GiveBack() {
  std::swap(pieces[Below(pieces.size())], pieces.back());
  const Piece piece = pieces.back();
  pieces.pop_back();
  const CUresult rc = simtest::FamilyNamed(piece.kind->family).give(piece.held);
  if (rc != CUDA_SUCCESS) worst = rc;
}

// A graph that allocates and frees: the device keeps its memory until it is trimmed.
CUgraph MakeGraph() {
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 wanted = {};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = 4 * kMiB;
  CUgraphNode taken = nullptr;
  CUgraphNode given = nullptr;
  MUST(cuGraphAddMemAllocNode(&taken, graph, nullptr, 0, &wanted));
  MUST(cuGraphAddMemFreeNode(&given, graph, &taken, 1, wanted.dptr));
  return graph;
}

void LaunchGraph() {
  static const CUgraph graph = MakeGraph();
  static CUgraphExec launchable = nullptr;
  if (launchable == nullptr) {
    Note(cuGraphInstantiateWithFlags(&launchable, graph, 0));
  } else {
    Note(cuGraphLaunch(launchable, nullptr));
  }
}

uint64_t PoolBytes() {
  CUmemoryPool pool = nullptr;
  cuuint64_t reserved = 0;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  return reserved;
}

uint64_t GraphBytes() {
  cuuint64_t reserved = 0;
  MUST(cuDeviceGraphMemTrim(0));
  MUST(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
  return reserved;
}

uint64_t ChargedBytes() {
  MUST(cuCtxSynchronize());
  std::set<uint64_t> chunks;
  uint64_t whole = 0;
  for (const Piece& piece : pieces) {
    if (piece.kind->charge == Charge::kLinear && piece.bytes < kChunk) {
      chunks.insert(piece.held.address / kChunk);
    } else if (piece.kind->charge == Charge::kLinear || piece.kind->charge == Charge::kWhole) {
      whole += RoundUp(piece.bytes, kChunk);
    }
  }
  return chunks.size() * kChunk + whole + PoolBytes() + GraphBytes();
}

void Stand() {
  printf("holds %d %llu %llu %llu\n", worst, static_cast<unsigned long long>(ChargedBytes()),
         static_cast<unsigned long long>(granted), static_cast<unsigned long long>(refused));
  granted = refused = 0;
  fflush(stdout);
}

void Answer(const char* word, int code) {
  printf("%s %d\n", word, code);
  fflush(stdout);
}

// Obeys whatever is waiting; stands still from "stand" to "go". False at the end of stdin.
bool Obey() {
  for (bool stands = false;;) {
    pollfd in = {STDIN_FILENO, POLLIN, 0};
    if (poll(&in, 1, stands ? -1 : 0) <= 0) return true;
    std::string line;
    for (char letter = 0; letter != '\n'; line += letter) {
      if (read(STDIN_FILENO, &letter, 1) != 1) return false;
    }
    if (line == "stand\n") {
      stands = true;
      Stand();
    } else if (line == "full\n") {
      CUdeviceptr address = 0;
      Answer("full", cuMemAlloc_v2(&address, uint64_t{1} << 40));
    } else if (line == "empty\n") {
      while (!pieces.empty()) GiveBack();
      Answer("empty", worst);
    } else {
      stands = false;
    }
  }
}

// The others may hold all there is for a moment.
void EnterContext() {
  CUcontext context = nullptr;
  CUresult made = CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < 10000 && made == CUDA_ERROR_OUT_OF_MEMORY; ++i) {
    if (i > 0) usleep(2000);
    made = cuCtxCreate_v2(&context, 0, 0);
  }
  simtest::Must(made, "cuCtxCreate_v2");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  state = strtoull(argv[1], nullptr, 10) * 0x9e3779b97f4a7c15u + 1;
  MUST(cuInit(0));
  EnterContext();
  printf("ready\n");
  fflush(stdout);
  pollfd in = {STDIN_FILENO, POLLIN, 0};
  poll(&in, 1, -1);
  while (Obey()) {
    const uint64_t choice = Below(16);
    if (choice == 0) {
      LaunchGraph();
    } else if (pieces.size() < kMostPieces && choice < 9) {
      Take();
    } else if (!pieces.empty()) {
      GiveBack();
    }
  }
  return 0;
}
