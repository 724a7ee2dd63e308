// Memory of one family in pieces until it is refused, every word written and read again in random
// order by kernels, on command:
//
//   fill FAMILY MIB      code of the refusal, MiB obtained
//   check                words wrong, of how many read: in order, then at random over all pieces
//   give                 code of the worst free; everything was freed
//   view                 free and total MiB as the program is told
//
// Families: linear, pitch, managed, async, pool, mapped. Runtime and driver calls mixed as programs
// mix them; the runtime is linked in.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Piece {
  CUdeviceptr address;
  size_t bytes;
};

std::vector<Piece> pieces;
std::string family;
CUmemoryPool pool = nullptr;
cudaStream_t stream = nullptr;

__device__ uint64_t ValueOf(uint64_t piece, uint64_t word) {
  return (piece << 40) ^ (word * 0x9E3779B97F4A7C15ull);
}

__global__ void Write(uint64_t* words, uint64_t count, uint64_t piece) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = ValueOf(piece, i);
  }
}

__global__ void Read(const uint64_t* words, uint64_t count, uint64_t piece,
                     unsigned long long* wrong) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    if (words[i] != ValueOf(piece, i)) atomicAdd(wrong, 1ull);
  }
}

// Any word of any piece, and what is found is written back.
__global__ void Wander(const Piece* all, uint64_t piece_count, int reads,
                       unsigned long long* wrong) {
  uint64_t state = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x + 1) * 0x9E3779B97F4A7C15ull;
  for (int i = 0; i < reads; ++i) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const uint64_t piece = (state >> 7) % piece_count;
    const uint64_t word = (state * 0x2545F4914F6CDD1Dull) % (all[piece].bytes / 8);
    auto* words = reinterpret_cast<volatile uint64_t*>(all[piece].address);
    const uint64_t found = words[word];
    if (found != ValueOf(piece, word)) atomicAdd(wrong, 1ull);
    words[word] = found;
  }
}

CUresult TakeMapped(size_t bytes, CUdeviceptr* address) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  CUresult rc = cuMemCreate(&handle, bytes, &prop, 0);
  if (rc != CUDA_SUCCESS) return rc;
  const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  rc = cuMemAddressReserve(address, bytes, 0, 0, 0);
  if (rc == CUDA_SUCCESS) rc = cuMemMap(*address, bytes, 0, handle, 0);
  if (rc == CUDA_SUCCESS) rc = cuMemSetAccess(*address, bytes, &access, 1);
  cuMemRelease(handle);
  return rc;
}

CUresult Take(size_t bytes, CUdeviceptr* address) {
  size_t pitch = 0;
  if (family == "linear") return cuMemAlloc(address, bytes);
  if (family == "pitch") return cuMemAllocPitch(address, &pitch, 4096, bytes / 4096, 4);
  if (family == "managed") return cuMemAllocManaged(address, bytes, CU_MEM_ATTACH_GLOBAL);
  if (family == "async") return cuMemAllocAsync(address, bytes, stream);
  if (family == "pool") return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
  return TakeMapped(bytes, address);
}

CUresult GiveOne(const Piece& piece) {
  if (family == "async" || family == "pool") return cuMemFreeAsync(piece.address, stream);
  if (family != "mapped") return cuMemFree(piece.address);
  const CUresult rc = cuMemUnmap(piece.address, piece.bytes);
  return rc == CUDA_SUCCESS ? cuMemAddressFree(piece.address, piece.bytes) : rc;
}

void Fill(size_t bytes) {
  CUresult rc = CUDA_SUCCESS;
  size_t obtained = 0;
  while (rc == CUDA_SUCCESS) {
    Piece piece = {0, bytes};
    rc = Take(bytes, &piece.address);
    if (rc == CUDA_SUCCESS) {
      pieces.push_back(piece);
      obtained += bytes;
    }
  }
  std::cout << rc << " " << obtained / kMiB << std::endl;
}

void Check() {
  // Pinned, so that checking takes no memory of the device.
  unsigned long long* wrong = nullptr;
  Piece* all = nullptr;
  cudaHostAlloc(&wrong, sizeof(*wrong), cudaHostAllocMapped);
  cudaHostAlloc(&all, pieces.size() * sizeof(Piece), cudaHostAllocMapped);
  std::copy(pieces.begin(), pieces.end(), all);
  *wrong = 0;
  uint64_t words = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t count = pieces[i].bytes / 8;
    Write<<<512, 256, 0, stream>>>(reinterpret_cast<uint64_t*>(pieces[i].address), count, i);
    words += count;
  }
  constexpr int kReads = 64;
  constexpr int kBlocks = 512;
  constexpr int kThreads = 256;
  Wander<<<kBlocks, kThreads, 0, stream>>>(all, pieces.size(), kReads, wrong);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Read<<<512, 256, 0, stream>>>(reinterpret_cast<uint64_t*>(pieces[i].address),
                                  pieces[i].bytes / 8, i, wrong);
  }
  const cudaError_t rc = cudaStreamSynchronize(stream);
  if (rc != cudaSuccess) *wrong = words;
  std::cout << *wrong << " " << words + uint64_t{kBlocks} * kThreads * kReads << std::endl;
  cudaFreeHost(wrong);
  cudaFreeHost(all);
}

void Give() {
  CUresult worst = CUDA_SUCCESS;
  for (const Piece& piece : pieces) worst = std::max(worst, GiveOne(piece));
  pieces.clear();
  cudaDeviceSynchronize();
  if (family == "async" || family == "pool") {
    CUmemoryPool used = pool;
    if (family == "async") cuDeviceGetDefaultMemPool(&used, 0);
    worst = std::max(worst, cuMemPoolTrimTo(used, 0));
  }
  std::cout << worst << std::endl;
}

}  // namespace

int main() {
  if (cudaSetDevice(0) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess) return 3;
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (cuMemPoolCreate(&pool, &props) != CUDA_SUCCESS) return 3;
  Write<<<1, 32, 0, stream>>>(nullptr, 0, 0);
  Read<<<1, 32, 0, stream>>>(nullptr, 0, 0, nullptr);
  Wander<<<1, 32, 0, stream>>>(nullptr, 1, 0, nullptr);
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  std::cout << "ready" << std::endl;
  for (std::string command; std::cin >> command;) {
    size_t mib = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (command == "fill") {
      std::cin >> family >> mib;
      Fill(mib * kMiB);
    } else if (command == "check") {
      Check();
    } else if (command == "give") {
      Give();
    } else {
      cudaMemGetInfo(&free_bytes, &total_bytes);
      std::cout << free_bytes / kMiB << " " << total_bytes / kMiB << std::endl;
    }
  }
  return 0;
}
