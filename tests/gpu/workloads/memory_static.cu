// The CUDA runtime's own ways to memory, linked in statically: it finds the driver by dlopen and
// cuGetProcAddress alone. Commands and answers as in memory_handles.cpp, and `shown`:
//
//   fill FAMILY BYTES    the runtime's code of the failure, pieces granted, output written
//   empty                worst code
//   shown                totalGlobalMem, total and free bytes of cudaMemGetInfo
//
// Families: malloc, pitch, managed, async, array, array3d, mipmap, capture.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

const uint64_t kUntouched = 0xabad1deaabad1dea;
const size_t kRowBytes = 1024 * sizeof(float4);

cudaStream_t stream = nullptr;

struct Piece {
  std::string family;
  uint64_t handle = kUntouched;
  cudaGraphExec_t exec = nullptr;

  void** address() { return reinterpret_cast<void**>(&handle); }
  template <typename Handle>
  Handle* as() {
    return reinterpret_cast<Handle*>(&handle);
  }
};

cudaError_t TakeArray(Piece* piece, size_t bytes) {
  const cudaChannelFormatDesc texel = cudaCreateChannelDesc<float4>();
  const size_t rows = bytes / kRowBytes;
  if (piece->family == "array") {
    return cudaMallocArray(piece->as<cudaArray_t>(), &texel, 1024, rows);
  }
  if (piece->family == "array3d") {
    return cudaMalloc3DArray(piece->as<cudaArray_t>(), &texel, make_cudaExtent(1024, rows / 8, 8));
  }
  return cudaMallocMipmappedArray(piece->as<cudaMipmappedArray_t>(), &texel,
                                  make_cudaExtent(1024, rows, 0), 5);
}

cudaError_t TakeCapture(Piece* piece, size_t bytes) {
  cudaGraph_t graph = nullptr;
  void* address = nullptr;
  cudaError_t code = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  if (code == cudaSuccess) code = cudaMallocAsync(&address, bytes, stream);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (code == cudaSuccess) code = ended;
  if (code == cudaSuccess) code = cudaGraphInstantiateWithFlags(&piece->exec, graph, 0);
  if (code == cudaSuccess) code = cudaGraphLaunch(piece->exec, stream);
  if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (code == cudaSuccess) {
    *piece->address() = address;
  } else if (piece->exec != nullptr) {
    cudaGraphExecDestroy(piece->exec);
  }
  return code;
}

cudaError_t Take(Piece* piece, size_t bytes) {
  size_t pitch = 0;
  if (piece->family == "malloc") return cudaMalloc(piece->address(), bytes);
  if (piece->family == "pitch") {
    return cudaMallocPitch(piece->address(), &pitch, 1000, bytes / 1024);
  }
  if (piece->family == "managed") return cudaMallocManaged(piece->address(), bytes);
  if (piece->family == "async") return cudaMallocAsync(piece->address(), bytes, stream);
  if (piece->family == "capture") return TakeCapture(piece, bytes);
  return TakeArray(piece, bytes);
}

cudaError_t Give(Piece* piece) {
  if (piece->family == "array" || piece->family == "array3d") {
    return cudaFreeArray(*piece->as<cudaArray_t>());
  }
  if (piece->family == "mipmap") return cudaFreeMipmappedArray(*piece->as<cudaMipmappedArray_t>());
  if (piece->family != "async" && piece->family != "capture") return cudaFree(*piece->address());
  cudaError_t code = cudaFreeAsync(*piece->address(), stream);
  if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
  if (piece->exec != nullptr) cudaGraphExecDestroy(piece->exec);
  return code;
}

void Fill(std::vector<Piece>* pieces, const std::string& family, size_t bytes) {
  for (size_t granted = 0; granted < 100000; ++granted) {
    Piece piece;
    piece.family = family;
    const cudaError_t code = Take(&piece, bytes);
    if (code != cudaSuccess) {
      cudaGetLastError();  // the runtime keeps it
      std::cout << code << " " << granted << " " << (piece.handle != kUntouched) << std::endl;
      return;
    }
    pieces->push_back(piece);
  }
  std::cout << 0 << " " << 100000 << " " << 1 << std::endl;
}

void Empty(std::vector<Piece>* pieces) {
  cudaError_t worst = cudaSuccess;
  for (Piece& piece : *pieces) {
    const cudaError_t code = Give(&piece);
    if (code != cudaSuccess) worst = code;
  }
  pieces->clear();
  if (worst == cudaSuccess) worst = cudaDeviceGraphMemTrim(0);
  std::cout << worst << std::endl;
}

void Show() {
  cudaDeviceProp properties;
  size_t free_bytes = 0, total_bytes = 0;
  cudaGetDeviceProperties(&properties, 0);
  cudaMemGetInfo(&free_bytes, &total_bytes);
  std::cout << properties.totalGlobalMem << " " << total_bytes << " " << free_bytes << std::endl;
}

}  // namespace

int main() {
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 1;
  std::cout << "ready" << std::endl;
  std::vector<Piece> pieces;
  for (std::string command; std::cin >> command;) {
    std::string family;
    size_t bytes = 0;
    if (command == "empty") {
      Empty(&pieces);
    } else if (command == "shown") {
      Show();
    } else if (command == "fill" && std::cin >> family >> bytes) {
      Fill(&pieces, family, bytes);
    } else {
      return 2;
    }
  }
  return 0;
}
