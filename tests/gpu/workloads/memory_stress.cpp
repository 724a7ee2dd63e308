// link: cuda
// flags: -pthread
// One process of the stress: threads that allocate and free random sizes (1 B to 300 MiB) by three
// families, as fast as they can, in contexts that come and go.
//
//   memory_stress SECONDS THREADS SEED
//
// Prints "ready" after cuInit, starts at a line on stdin, prints its counts as one JSON object,
// and ends at the next line.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/sim_program.h"

namespace {

constexpr size_t kMostLive = 24;
constexpr size_t kGranularity = 2 * simtest::kMiB;
constexpr double kContextSeconds = 2.5;

double deadline_s = 0;
std::atomic<uint64_t> grants{0};
std::atomic<uint64_t> refusals{0};
std::atomic<uint64_t> contexts{0};
std::atomic<uint64_t> contexts_refused{0};
std::mutex odd_codes_mutex;
std::map<int, uint64_t> odd_codes;  // neither success nor out of memory

double NowS() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

CUresult Count(CUresult rc) {
  if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY) return rc;
  const std::lock_guard<std::mutex> guard(odd_codes_mutex);
  ++odd_codes[rc];
  return rc;
}

enum Family { kLinear, kAsync, kPhysical, kFamilies };

struct Piece {
  Family family;
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  size_t bytes;
};

CUresult TakePhysical(Piece* piece) {
  piece->bytes = (piece->bytes + kGranularity - 1) / kGranularity * kGranularity;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUresult rc = cuMemCreate(&piece->handle, piece->bytes, &prop, 0);
  if (rc != CUDA_SUCCESS) return rc;
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuMemAddressReserve(&piece->address, piece->bytes, 0, 0, 0));
  MUST(cuMemMap(piece->address, piece->bytes, 0, piece->handle, 0));
  // Mapping may need page tables, which are device memory, too.
  Count(cuMemSetAccess(piece->address, piece->bytes, &access, 1));
  return CUDA_SUCCESS;
}

CUresult Take(Piece* piece, CUstream stream) {
  if (piece->family == kLinear) return cuMemAlloc_v2(&piece->address, piece->bytes);
  if (piece->family == kAsync) return cuMemAllocAsync(&piece->address, piece->bytes, stream);
  return TakePhysical(piece);
}

void Give(const Piece& piece, CUstream stream) {
  if (piece.family == kLinear) {
    Count(cuMemFree_v2(piece.address));
  } else if (piece.family == kAsync) {
    Count(cuMemFreeAsync(piece.address, stream));
  } else {
    Count(cuMemUnmap(piece.address, piece.bytes));
    Count(cuMemAddressFree(piece.address, piece.bytes));
    Count(cuMemRelease(piece.handle));
  }
}

void Work(CUcontext context, uint64_t seed, double until_s) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(0.0, 28.23);  // 2^28.23 is 300 MiB
  std::vector<Piece> live;
  CUstream stream = nullptr;
  MUST(cuCtxSetCurrent(context));
  // A stream may need device memory, too, and the limit may be reached already.
  if (Count(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) return;
  while (NowS() < until_s) {
    Piece piece = {};
    piece.family = static_cast<Family>(random() % kFamilies);
    piece.bytes = static_cast<size_t>(std::exp2(exponent(random)));
    const CUresult rc = Count(Take(&piece, stream));
    if (rc == CUDA_SUCCESS) {
      ++grants;
      live.push_back(piece);
    } else if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
      ++refusals;
    }
    while (!live.empty() && (live.size() > kMostLive || random() % 5 < 2)) {
      const size_t index = random() % live.size();
      Give(live[index], stream);
      live[index] = live.back();
      live.pop_back();
    }
    if (random() % 16 == 0) Count(cuStreamSynchronize(stream));
  }
  for (const Piece& piece : live) Give(piece, stream);
  Count(cuStreamSynchronize(stream));
  Count(cuStreamDestroy_v2(stream));
}

// The primary context for a while, with all threads in it; false when there is no room for it.
bool UseContext(int threads, uint64_t seed) {
  CUcontext context = nullptr;
  if (Count(cuDevicePrimaryCtxRetain(&context, 0)) != CUDA_SUCCESS) {
    ++contexts_refused;
    return false;
  }
  ++contexts;
  const double until_s = std::min(NowS() + kContextSeconds, deadline_s);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(Work, context, seed * 64 + i, until_s);
  for (std::thread& worker : workers) worker.join();
  Count(cuDevicePrimaryCtxRelease_v2(0));
  return true;
}

void Tell() {
  printf("{\"grants\": %llu, \"refusals\": %llu, \"contexts\": %llu, \"contexts_refused\": %llu",
         static_cast<unsigned long long>(grants), static_cast<unsigned long long>(refusals),
         static_cast<unsigned long long>(contexts),
         static_cast<unsigned long long>(contexts_refused));
  printf(", \"odd_codes\": {");
  const char* separator = "";
  for (const auto& [code, count] : odd_codes) {
    printf("%s\"%d\": %llu", separator, code, static_cast<unsigned long long>(count));
    separator = ", ";
  }
  printf("}}\n");
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const double seconds = atof(argv[1]);
  const int threads = atoi(argv[2]);
  const auto seed = static_cast<uint64_t>(atoll(argv[3]));
  MUST(cuInit(0));
  puts("ready");
  fflush(stdout);
  if (!simtest::AwaitLine()) return 2;
  deadline_s = NowS() + seconds;
  for (uint64_t round = 1; NowS() < deadline_s; ++round) {
    if (UseContext(threads, seed * 1000 + round)) continue;
    const timespec pause = {0, 20 * 1000 * 1000};
    nanosleep(&pause, nullptr);
  }
  Tell();
  simtest::AwaitLine();
  return 0;
}
