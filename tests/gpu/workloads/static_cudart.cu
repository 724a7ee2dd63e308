// A program with the CUDA runtime linked in statically, as nvcc does by default: it finds the
// driver by dlopen and cuGetProcAddress alone.  Results on stdout; evidence as in evidence.py.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t code = (call);                                                    \
    if (code != cudaSuccess) {                                                          \
      std::printf("%s: %s\n", #call, cudaGetErrorName(code));                           \
      return 1;                                                                         \
    }                                                                                   \
  } while (false)

__global__ void Add(const float* a, const float* b, float* out, int count) {
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < count) out[i] = a[i] + b[i];
}

// Whether a file name shows among this process's mappings.
static bool Mapped(const char* name) {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return false;
  char line[1024];
  bool found = false;
  while (std::fgets(line, sizeof line, maps) != nullptr) found |= std::strstr(line, name) != nullptr;
  std::fclose(maps);
  return found;
}

static void LeaveEvidence() {
  const char* path = std::getenv("GPUFENCE_TEST_EVIDENCE");
  std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "{\"libgpufence\": %s, \"libcuda\": %s}\n",
               Mapped("libgpufence.so") ? "true" : "false", Mapped("libcuda.so") ? "true" : "false");
  std::fclose(file);
}

int main() {
  constexpr int kCount = 1 << 20;
  std::vector<float> a(kCount), b(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = 0.5f * static_cast<float>(i);
    b[i] = 3.25f;
  }
  float *device_a, *device_b, *device_out;
  const size_t bytes = kCount * sizeof(float);
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocAsync(&device_out, bytes, stream));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyAsync(device_b, b.data(), bytes, cudaMemcpyHostToDevice, stream));
  Add<<<(kCount + 255) / 256, 256, 0, stream>>>(device_a, device_b, device_out, kCount);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyAsync(out.data(), device_out, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += out[i] != a[i] + b[i];
  std::printf("wrong elements: %d of %d\n", wrong, kCount);

  void* too_much = nullptr;
  std::printf("a petabyte: %s\n", cudaGetErrorName(cudaMalloc(&too_much, size_t{1} << 50)));
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  std::printf("total: %zu\n", total_bytes);
  CHECK(cudaFreeAsync(device_out, stream));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  LeaveEvidence();
  return wrong == 0 ? 0 : 1;
}
