// link: cuda
// flags: -pthread
// Threads that fill and free a container's memory by every family at once: stream-ordered memory
// from the device's pool and an own one, physical, linear and array memory, with frees by either
// door on either stream, waits, trims and thresholds in between.
//
//   pool_storm SEED THREADS STEPS     {"granted", "refused", "failed": calls with any other code};
//                                     ends at the next line on stdin
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr size_t kChunk = 2 * kMiB;
constexpr size_t kMostLive = 24;

std::atomic<uint64_t> granted{0};
std::atomic<uint64_t> refused{0};
std::atomic<uint64_t> failed{0};
CUmemoryPool own_pool = nullptr;

bool Count(CUresult rc) {
  (rc == CUDA_SUCCESS ? granted : rc == CUDA_ERROR_OUT_OF_MEMORY ? refused : failed).fetch_add(1);
  return rc == CUDA_SUCCESS;
}

void Must(CUresult rc) {
  if (rc != CUDA_SUCCESS) ++failed;
}

enum Family { kAsync, kAsyncToo, kPool, kPhysical, kLinear, kArray, kFamilies };

struct Piece {
  Family family;
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  CUarray array;
};

bool TakePhysical(size_t bytes, Piece* piece) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return Count(cuMemCreate(&piece->handle, (bytes + kChunk - 1) / kChunk * kChunk, &prop, 0));
}

bool TakeArray(size_t bytes, Piece* piece) {
  CUDA_ARRAY_DESCRIPTOR shape = {};
  shape.Width = 1024;
  shape.Height = bytes / 4096 + 1;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  return Count(cuArrayCreate_v2(&piece->array, &shape));
}

bool Take(Piece* piece, size_t bytes, CUstream stream) {
  switch (piece->family) {
    case kPool:
      return Count(cuMemAllocFromPoolAsync(&piece->address, bytes, own_pool, stream));
    case kPhysical:
      return TakePhysical(bytes, piece);
    case kLinear:  // of chunks of its own: how small ones share theirs is another matter
      return Count(cuMemAlloc_v2(&piece->address, bytes + kChunk));
    case kArray:
      return TakeArray(bytes, piece);
    default:
      return Count(cuMemAllocAsync(&piece->address, bytes, stream));
  }
}

void Give(const Piece& piece, CUstream stream, bool at_once) {
  if (piece.family == kPhysical) {
    Must(cuMemRelease(piece.handle));
  } else if (piece.family == kArray) {
    Must(cuArrayDestroy(piece.array));
  } else if (at_once) {
    Must(cuMemFree_v2(piece.address));
  } else {
    Must(cuMemFreeAsync(piece.address, stream));
  }
}

// Waits, trims and thresholds: what makes pools lose blocks behind the requests under way.
void Disturb(unsigned draw, CUstream stream) {
  CUmemoryPool pool = own_pool;
  if (draw % 2 == 0) Must(cuDeviceGetDefaultMemPool(&pool, 0));
  cuuint64_t threshold = (draw / 2 % 3) * 64 * kMiB;
  if (draw % 5 == 0)
    Must(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  if (draw % 7 == 0) Must(cuMemPoolTrimTo(pool, 0));
  Must(cuStreamSynchronize(stream));
}

// It takes memory, too, and the others may have filled the limit already.
void MakeStream(CUstream* stream) {
  CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
  while (rc == CUDA_ERROR_OUT_OF_MEMORY) rc = cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
  Must(rc);
}

void Work(CUcontext context, unsigned seed, int steps) {
  std::mt19937 random(seed);
  std::vector<Piece> live;
  CUstream streams[2] = {};
  Must(cuCtxSetCurrent(context));
  for (CUstream& stream : streams) MakeStream(&stream);
  for (int step = 0; step < steps; ++step) {
    Piece piece = {};
    piece.family = static_cast<Family>(random() % kFamilies);
    const size_t bytes = (size_t{1} << (9 + random() % 17)) + random() % 100000;
    if (Take(&piece, bytes, streams[random() % 2])) live.push_back(piece);
    while (!live.empty() && (live.size() > kMostLive || random() % 5 < 2)) {
      const size_t index = random() % live.size();
      Give(live[index], streams[random() % 2], random() % 8 == 0);
      live[index] = live.back();
      live.pop_back();
    }
    if (random() % 8 == 0) Disturb(static_cast<unsigned>(random()), streams[random() % 2]);
  }
  for (const Piece& piece : live) Give(piece, streams[0], false);
  for (CUstream stream : streams) {
    Must(cuStreamSynchronize(stream));
    Must(cuStreamDestroy_v2(stream));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto seed = static_cast<unsigned>(atoi(argv[1]));
  const int thread_count = atoi(argv[2]);
  MUST(cuInit(0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  MUST(cuMemPoolCreate(&own_pool, &props));
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back(Work, context, seed * 64 + static_cast<unsigned>(i), atoi(argv[3]));
  }
  for (std::thread& thread : threads) thread.join();
  MUST(cuMemPoolDestroy(own_pool));
  CUmemoryPool pool = nullptr;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuCtxSynchronize());
  MUST(cuMemPoolTrimTo(pool, 0));
  {
    Facts facts;
    facts.Say("granted", granted.load());
    facts.Say("refused", refused.load());
    facts.Say("failed", failed.load());
  }
  AwaitLine();
  return 0;
}
