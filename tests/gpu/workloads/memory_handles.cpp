// link: cuda
// flags: -pthread
// Takes device memory that is no plain address until it is refused, through one way of reaching the
// driver (argv[1], see memory_ways.h). One command a line on stdin, one line of numbers as answer:
//
//   fill FAMILY BYTES    pieces of BYTES until one fails: the driver's code, pieces granted,
//                        whether the failed call wrote to its output
//   empty                frees them all: the driver's worst code
//
// Families: vmm, vmm_handle, vmm_mapped, array, array3d, layered, mipmap, graph, capture, module,
// context, deep_launch (a kernel whose local memory no such limit can hold).
#include <iostream>
#include <string>
#include <vector>

#include "memory/memory_ways.h"
#include "support/sim_program.h"

namespace {

CUcontext context = nullptr;
CUstream stream = nullptr;

// What a refused call must leave alone.
constexpr uint64_t kUntouched = 0xabad1deaabad1dea;

struct Piece {
  std::string family;
  uint64_t handle = kUntouched;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

template <typename Handle>
Handle* Out(Piece* piece) {
  static_assert(sizeof(Handle) == sizeof(piece->handle));
  return reinterpret_cast<Handle*>(&piece->handle);
}

template <typename Handle>
Handle As(const Piece& piece) {
  return (Handle)piece.handle;
}

CUresult Map(Piece* piece) {
  const auto handle = As<CUmemGenericAllocationHandle>(*piece);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult rc =
      FIND(cuMemAddressReserve, cuMemAddressReserve, 10020)(&piece->address, piece->bytes, 0, 0, 0);
  if (rc != CUDA_SUCCESS) return rc;
  rc = FIND(cuMemMap, cuMemMap, 10020)(piece->address, piece->bytes, 0, handle, 0);
  if (rc != CUDA_SUCCESS) return rc;
  rc = FIND(cuMemSetAccess, cuMemSetAccess, 10020)(piece->address, piece->bytes, &access, 1);
  if (rc != CUDA_SUCCESS || piece->family != "vmm_mapped") return rc;
  return FIND(cuMemRelease, cuMemRelease, 10020)(handle);
}

CUresult TakePhysical(Piece* piece) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUresult rc = FIND(cuMemCreate, cuMemCreate, 10020)(
      Out<CUmemGenericAllocationHandle>(piece), piece->bytes, &prop, 0);
  if (rc != CUDA_SUCCESS || piece->family == "vmm_handle") return rc;
  return Map(piece);
}

// Texels of four floats, 1024 a row.
constexpr size_t kRowBytes = 1024 * 16;

CUresult TakeArray(Piece* piece) {
  const size_t rows = piece->bytes / kRowBytes;
  if (piece->family == "array") {
    CUDA_ARRAY_DESCRIPTOR shape = {};
    shape.Width = 1024;
    shape.Height = rows;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    return FIND(cuArrayCreate_v2, cuArrayCreate, 3020)(Out<CUarray>(piece), &shape);
  }
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  shape.Width = 1024;
  shape.Height = piece->family == "mipmap" ? rows : rows / 8;
  shape.Depth = piece->family == "mipmap" ? 0 : 8;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  shape.Flags = piece->family == "layered" ? CUDA_ARRAY3D_LAYERED : 0;
  if (piece->family == "mipmap") {
    return FIND(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000)(Out<CUmipmappedArray>(piece),
                                                                      &shape, 5);
  }
  return FIND(cuArray3DCreate_v2, cuArray3DCreate, 3020)(Out<CUarray>(piece), &shape);
}

CUresult BuildGraph(Piece* piece) {
  if (piece->family == "capture") {
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUresult rc =
        FIND(cuMemAllocAsync, cuMemAllocAsync, 11020)(&piece->address, piece->bytes, stream);
    MUST(cuStreamEndCapture(stream, &piece->graph));
    return rc;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = piece->bytes;
  CUgraphNode node = nullptr;
  MUST(cuGraphCreate(&piece->graph, 0));
  const CUresult rc = FIND(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040)(
      &node, piece->graph, nullptr, 0, &params);
  piece->address = params.dptr;
  return rc;
}

void DropGraph(const Piece& piece) {
  if (piece.exec != nullptr) MUST(cuGraphExecDestroy(piece.exec));
  if (piece.graph != nullptr) MUST(cuGraphDestroy(piece.graph));
}

// The memory is taken at the launch and stays until it is freed on a stream and trimmed.
CUresult TakeGraph(Piece* piece) {
  CUresult rc = BuildGraph(piece);
  if (rc == CUDA_SUCCESS) {
    rc = FIND(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)(&piece->exec,
                                                                               piece->graph, 0);
  }
  if (rc == CUDA_SUCCESS) rc = FIND(cuGraphLaunch, cuGraphLaunch, 10000)(piece->exec, stream);
  if (rc == CUDA_SUCCESS) rc = cuStreamSynchronize(stream);
  if (rc != CUDA_SUCCESS) DropGraph(*piece);
  return rc;
}

CUresult TakeModule(Piece* piece) {
  const std::string image =
      ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 16 .b8 table[" +
      std::to_string(piece->bytes) + "];\n.visible .entry touch() { ret; }\n";
  return FIND(cuModuleLoadData, cuModuleLoadData, 2000)(Out<CUmodule>(piece), image.c_str());
}

// 64 KiB of local memory a thread, for every thread that the device can hold at once: 16 GiB.
constexpr char kDeep[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry deep(.param .u64 out) {
  .local .align 16 .b8 depot[65536];
  .reg .b64 %rd<5>;
  .reg .b32 %r<3>;
  mov.u64 %rd1, depot;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.local.u32 [%rd3], %r1;
  ld.param.u64 %rd4, [out];
  ld.local.u32 %r2, [%rd1];
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

CUresult TakeLocalMemory(Piece* piece) {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUdeviceptr out = 0;
  MUST(cuModuleLoadData(&module, kDeep));
  MUST(cuModuleGetFunction(&kernel, module, "deep"));
  MUST(cuMemAlloc_v2(&out, piece->bytes));
  void* parameters[] = {&out};
  const CUresult rc = FIND(cuLaunchKernel, cuLaunchKernel, 4000)(kernel, 1, 1, 1, 32, 1, 1, 0,
                                                                 stream, parameters, nullptr);
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree_v2(out));
  MUST(cuModuleUnload(module));
  return rc;
}

CUresult Take(Piece* piece) {
  const std::string& family = piece->family;
  if (family.rfind("vmm", 0) == 0) return TakePhysical(piece);
  if (family == "graph" || family == "capture") return TakeGraph(piece);
  if (family == "module") return TakeModule(piece);
  if (family == "deep_launch") return TakeLocalMemory(piece);
  if (family != "context") return TakeArray(piece);
  const CUresult rc = FIND(cuCtxCreate_v2, cuCtxCreate, 3020)(Out<CUcontext>(piece), 0, 0);
  MUST(cuCtxSetCurrent(context));
  return rc;
}

CUresult GivePhysical(const Piece& piece) {
  CUresult rc = CUDA_SUCCESS;
  if (piece.address != 0) {
    rc = FIND(cuMemUnmap, cuMemUnmap, 10020)(piece.address, piece.bytes);
    MUST(cuMemAddressFree(piece.address, piece.bytes));
  }
  if (piece.family == "vmm_mapped" || rc != CUDA_SUCCESS) return rc;
  return FIND(cuMemRelease, cuMemRelease, 10020)(As<CUmemGenericAllocationHandle>(piece));
}

CUresult Give(const Piece& piece) {
  const std::string& family = piece.family;
  if (family.rfind("vmm", 0) == 0) return GivePhysical(piece);
  if (family == "module") {
    return FIND(cuModuleUnload, cuModuleUnload, 2000)(As<CUmodule>(piece));
  }
  if (family == "context") return FIND(cuCtxDestroy_v2, cuCtxDestroy, 4000)(As<CUcontext>(piece));
  if (family == "mipmap") {
    return FIND(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy,
                5000)(As<CUmipmappedArray>(piece));
  }
  if (family == "graph" || family == "capture") {
    const CUresult rc = FIND(cuMemFreeAsync, cuMemFreeAsync, 11020)(piece.address, stream);
    MUST(cuStreamSynchronize(stream));
    DropGraph(piece);
    return rc;
  }
  return FIND(cuArrayDestroy, cuArrayDestroy, 2000)(As<CUarray>(piece));
}

void Fill(std::vector<Piece>* pieces, const std::string& family, size_t bytes) {
  constexpr size_t kMost = 100000;
  for (size_t granted = 0;; ++granted) {
    Piece piece;
    piece.family = family;
    piece.bytes = bytes;
    const CUresult rc = granted < kMost ? Take(&piece) : CUDA_SUCCESS;
    if (rc != CUDA_SUCCESS || granted == kMost || family == "deep_launch") {
      const bool written = piece.handle != kUntouched;
      std::cout << rc << " " << granted << " " << written << std::endl;
      return;
    }
    pieces->push_back(piece);
  }
}

void Empty(std::vector<Piece>* pieces) {
  CUresult worst = CUDA_SUCCESS;
  for (const Piece& piece : *pieces) {
    const CUresult rc = Give(piece);
    if (rc != CUDA_SUCCESS) worst = rc;
  }
  pieces->clear();
  if (worst == CUDA_SUCCESS) worst = FIND(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040)(0);
  std::cout << worst << std::endl;
}

}  // namespace

int main(int, char** argv) {
  ways::way = argv[1];
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::cout << "ready" << std::endl;
  std::vector<Piece> pieces;
  for (std::string command; std::cin >> command;) {
    std::string family;
    size_t bytes = 0;
    if (command == "empty") {
      Empty(&pieces);
    } else if (command == "fill" && std::cin >> family >> bytes) {
      Fill(&pieces, family, bytes);
    } else {
      return 2;
    }
  }
  return 0;
}
