// link: cuda
// flags: -Wl,-z,lazy
// Memory behind handles and in graphs, on command. One command a line on stdin, one line of numbers
// as the answer, the driver's code first; addresses and handles are numbers.
//
//   create WHERE BYTES           code, handle, whether the output was written
//   release H | map VA BYTES H | unmap VA BYTES | reserve BYTES | retain VA | export H | import FD
//   array FORM WIDTH HEIGHT DEPTH FLAGS LEVELS    code, handle, written (elements of four floats)
//   drop FORM H                  destroys an array
//   tile OPERATION ARRAY H X     maps (1) or unmaps (2) a tile of a sparse array
//   graph WHAT BYTES...          code, graph: allocation nodes, freed in it ("free") or not
//   ("keep") record BYTES                 the same by capturing cuMemAllocAsync and cuMemFreeAsync
//   kernels NAME COUNT           code, graph of kernels: plain, deep (8 KiB a thread), deepest
//   nest GRAPH DEPTH             code, graph that holds this one so deep in child graphs
//   exchange FORM E G NAME       gives the first node of G another kernel in E
//   instantiate FORM G           code, executable, written
//   run FORM E | in_capture E | update FORM E G | end E | end_graph G | trim | give | sync
//   leave                        destroys the context
//   alloc BYTES | free VA | pid | fetch PID FD      linear memory; another process's descriptor
//   close FD | close_from FD | child | reap PID    a child that keeps every descriptor
//   few N                        no descriptor at or above N from now on
//   ipc_get VA                   code and the eight words of its handle
//   ipc_open WORDS | ipc_close VA
//   multicast                    codes of every call on garbage
//   attribute                    code, reserved bytes of the device's graphs
// With the argument "look" it says how many bytes of the device are in use, and ends.
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "descriptor_commands.h"
#include "support/fence_program.h"

namespace {

constexpr uint64_t kUntouched = 0xabad1deaabad1dea;

CUstream stream = nullptr;
std::vector<CUdeviceptr> kept;

template <typename Handle>
Handle As(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

uint64_t Number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

struct Words {
  std::istringstream line;
  std::string Text() {
    std::string text;
    line >> text;
    return text;
  }
  uint64_t Next() {
    uint64_t number = 0;
    line >> number;
    return number;
  }
  bool More() { return line.good() && line.peek() != EOF; }
};

void Answer(CUresult code) { std::cout << static_cast<int>(code) << std::endl; }
void Answer(CUresult code, uint64_t one) {
  std::cout << static_cast<int>(code) << ' ' << one << std::endl;
}
void AnswerOutput(CUresult code, uint64_t output) {
  std::cout << static_cast<int>(code) << ' ' << output << ' ' << (output != kUntouched)
            << std::endl;
}

void Create(Words& words) {
  const std::string where = words.Text();
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (where == "host") prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
  if (where == "host_numa") prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (where == "device1") prop.location.id = 1;
  if (where == "shared") prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = kUntouched;
  const CUresult code = cuMemCreate(&handle, words.Next(), where == "null" ? nullptr : &prop, 0);
  AnswerOutput(code, handle);
}

void Physical(const std::string& what, Words& words) {
  const uint64_t first = words.Next();
  const uint64_t second = words.Next();
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  if (what == "release") return Answer(cuMemRelease(first));
  if (what == "unmap") return Answer(cuMemUnmap(first, second));
  if (what == "map") return Answer(cuMemMap(first, second, 0, words.Next(), 0));
  if (what == "reserve") {
    const CUresult code = cuMemAddressReserve(&address, first, 0, 0, 0);
    return Answer(code, address);
  }
  if (what == "retain") {
    const CUresult code = cuMemRetainAllocationHandle(&handle, As<void*>(first));
    return Answer(code, handle);
  }
  if (what == "export") {
    const CUresult code =
        cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return Answer(code, static_cast<uint64_t>(fd));
  }
  const CUresult code = cuMemImportFromShareableHandle(&handle, As<void*>(first),
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  Answer(code, handle);
}

template <typename Descriptor>
Descriptor Describe(const uint64_t (&numbers)[4]) {
  Descriptor wanted = {};
  wanted.Width = static_cast<decltype(wanted.Width)>(numbers[0]);
  wanted.Height = static_cast<decltype(wanted.Height)>(numbers[1]);
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 4;
  if constexpr (requires { wanted.Depth; }) {
    wanted.Depth = static_cast<decltype(wanted.Depth)>(numbers[2]);
    wanted.Flags = static_cast<unsigned>(numbers[3]);
  }
  return wanted;
}

void MakeArray(Words& words) {
  const std::string form = words.Text();
  uint64_t numbers[4];
  for (uint64_t& number : numbers) number = words.Next();
  const auto levels = static_cast<unsigned>(words.Next());
  const auto flat_v1 = Describe<CUDA_ARRAY_DESCRIPTOR_v1>(numbers);
  const auto flat = Describe<CUDA_ARRAY_DESCRIPTOR>(numbers);
  const auto deep_v1 = Describe<CUDA_ARRAY3D_DESCRIPTOR_v1>(numbers);
  const auto deep = Describe<CUDA_ARRAY3D_DESCRIPTOR>(numbers);
  uint64_t handle = kUntouched;
  auto* array = reinterpret_cast<CUarray*>(&handle);
  CUresult code = CUDA_ERROR_UNKNOWN;
  if (form == "flat_v1") code = cuArrayCreate(array, &flat_v1);
  if (form == "flat") code = cuArrayCreate_v2(array, &flat);
  if (form == "deep_v1") code = cuArray3DCreate(array, &deep_v1);
  if (form == "deep") code = cuArray3DCreate_v2(array, &deep);
  if (form == "mipmap") {
    code = cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(&handle), &deep, levels);
  }
  AnswerOutput(code, handle);
}

void DropArray(Words& words) {
  const std::string form = words.Text();
  const uint64_t handle = words.Next();
  if (form != "mipmap") return Answer(cuArrayDestroy(As<CUarray>(handle)));
  Answer(cuMipmappedArrayDestroy(As<CUmipmappedArray>(handle)));
}

void MapTile(Words& words) {
  CUarrayMapInfo info = {};
  info.memOperationType = static_cast<CUmemOperationType>(words.Next());
  info.resourceType = CU_RESOURCE_TYPE_ARRAY;
  info.resource.array = As<CUarray>(words.Next());
  info.memHandle.memHandle = words.Next();
  info.subresource.sparseLevel.offsetX = static_cast<unsigned>(words.Next());
  info.subresource.sparseLevel.extentWidth = 64;
  info.subresource.sparseLevel.extentHeight = 64;
  info.subresource.sparseLevel.extentDepth = 1;
  info.deviceBitMask = 1;
  Answer(cuMemMapArrayAsync(&info, 1, stream));
}

void MakeGraph(Words& words) {
  const bool keep = words.Text() == "keep";
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUresult code = CUDA_SUCCESS;
  while (words.More() && code == CUDA_SUCCESS) {
    CUgraphNode node = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.bytesize = words.Next();
    code = cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted);
    if (code != CUDA_SUCCESS) break;
    if (keep) kept.push_back(wanted.dptr);
    CUgraphNode freed = nullptr;
    if (!keep) code = cuGraphAddMemFreeNode(&freed, graph, &node, 1, wanted.dptr);
  }
  Answer(code, Number(graph));
}

void RecordGraph(Words& words) {
  CUdeviceptr address = 0;
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUresult code = cuMemAllocAsync(&address, words.Next(), stream);
  if (code == CUDA_SUCCESS) MUST(cuMemFreeAsync(address, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  Answer(code, Number(graph));
}

CUfunction Kernel(const std::string& name) {
  static CUmodule module = nullptr;
  if (module == nullptr) MUST(cuModuleLoadData(&module, fencetest::kKernels));
  return fencetest::Function(module, name.c_str());
}

CUDA_KERNEL_NODE_PARAMS KernelNode(const std::string& name) {
  CUDA_KERNEL_NODE_PARAMS wanted = {};
  wanted.func = Kernel(name);
  wanted.gridDimX = wanted.gridDimY = wanted.gridDimZ = 1;
  wanted.blockDimX = wanted.blockDimY = wanted.blockDimZ = 1;
  return wanted;
}

void MakeKernels(Words& words) {
  const CUDA_KERNEL_NODE_PARAMS wanted = KernelNode(words.Text());
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  for (uint64_t count = words.Next(); count > 0; --count) {
    MUST(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &wanted));
  }
  Answer(CUDA_SUCCESS, Number(graph));
}

void Nest(Words& words) {
  auto inner = As<CUgraph>(words.Next());
  CUgraphNode node = nullptr;
  CUresult code = CUDA_SUCCESS;
  for (uint64_t depth = words.Next(); depth > 0 && code == CUDA_SUCCESS; --depth) {
    CUgraph outer = nullptr;
    MUST(cuGraphCreate(&outer, 0));
    code = cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner);
    inner = outer;
  }
  Answer(code, Number(inner));
}

void Exchange(Words& words) {
  const std::string form = words.Text();
  const auto exec = As<CUgraphExec>(words.Next());
  size_t count = 1;
  CUgraphNode node = nullptr;
  MUST(cuGraphGetNodes(As<CUgraph>(words.Next()), &node, &count));
  const CUDA_KERNEL_NODE_PARAMS wanted = KernelNode(words.Text());
  if (form == "v2") return Answer(cuGraphExecKernelNodeSetParams_v2(exec, node, &wanted));
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  memcpy(&params.kernel, &wanted, sizeof wanted);
  Answer(cuGraphExecNodeSetParams(exec, node, &params));
}

void Instantiate(Words& words) {
  const std::string form = words.Text();
  const auto graph = As<CUgraph>(words.Next());
  uint64_t handle = kUntouched;
  auto* exec = reinterpret_cast<CUgraphExec*>(&handle);
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  if (form == "upload")
    params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
              .hUploadStream = stream,
              .hErrNode_out = nullptr,
              .result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS};
  CUresult code = CUDA_ERROR_UNKNOWN;
  if (form == "v1") code = cuGraphInstantiate(exec, graph, nullptr, nullptr, 0);
  if (form == "v2") code = cuGraphInstantiate_v2(exec, graph, nullptr, nullptr, 0);
  if (form == "flags") code = cuGraphInstantiateWithFlags(exec, graph, 0);
  if (form == "params" || form == "upload") {
    code = cuGraphInstantiateWithParams(exec, graph, &params);
  }
  if (form == "params_ptsz") code = cuGraphInstantiateWithParams_ptsz(exec, graph, &params);
  AnswerOutput(code, handle);
}

void Run(Words& words) {
  const std::string form = words.Text();
  const auto exec = As<CUgraphExec>(words.Next());
  if (form == "launch") return Answer(cuGraphLaunch(exec, stream));
  if (form == "launch_ptsz") return Answer(cuGraphLaunch_ptsz(exec, stream));
  if (form == "upload") return Answer(cuGraphUpload(exec, stream));
  Answer(cuGraphUpload_ptsz(exec, stream));
}

// What a launch into a capturing stream says, and whether the capture is alive afterwards.
void RunInCapture(Words& words) {
  const auto exec = As<CUgraphExec>(words.Next());
  CUstream other = nullptr;
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUresult code = cuGraphLaunch(exec, other);
  CUgraph graph = nullptr;
  Answer(code, cuStreamEndCapture(stream, &graph));
  MUST(cuStreamSynchronize(other));
}

void Update(Words& words) {
  const std::string form = words.Text();
  const auto exec = As<CUgraphExec>(words.Next());
  const auto graph = As<CUgraph>(words.Next());
  CUgraphExecUpdateResultInfo info = {};
  if (form != "v1") return Answer(cuGraphExecUpdate_v2(exec, graph, &info));
  Answer(cuGraphExecUpdate(exec, graph, &info.errorNode, &info.result));
}

void GiveKept() {
  CUresult worst = CUDA_SUCCESS;
  for (const CUdeviceptr address : kept) {
    const CUresult code = cuMemFreeAsync(address, stream);
    if (code != CUDA_SUCCESS) worst = code;
  }
  kept.clear();
  Answer(worst);
}

void TryMulticast() {
  CUmemGenericAllocationHandle object = 0;
  CUmulticastObjectProp prop = {};
  std::cout << cuMulticastCreate(&object, &prop) << ' ' << cuMulticastBindMem(1, 0, 2, 0, 3, 0)
            << ' ' << cuMulticastBindAddr(1, 0, 2, 3, 0) << ' ' << cuMulticastUnbind(1, 0, 0, 3)
            << std::endl;
}

// Another process's descriptor, opened anew.
bool Linear(const std::string& what, Words& words) {
  CUdeviceptr address = 0;
  uint64_t numbers[8] = {};
  CUipcMemHandle handle = {};
  static_assert(sizeof handle == sizeof numbers);
  if (what == "alloc") {
    const CUresult code = cuMemAlloc_v2(&address, words.Next());
    Answer(code, address);
  } else if (what == "free") {
    Answer(cuMemFree_v2(words.Next()));
  } else if (what == "ipc_get") {
    const CUresult code = cuIpcGetMemHandle(&handle, words.Next());
    memcpy(numbers, &handle, sizeof handle);
    std::cout << code;
    for (const uint64_t number : numbers) std::cout << ' ' << number;
    std::cout << std::endl;
  } else if (what == "ipc_open") {
    for (uint64_t& number : numbers) number = words.Next();
    memcpy(&handle, numbers, sizeof handle);
    const CUresult code = cuIpcOpenMemHandle_v2(&address, handle, 1);
    Answer(code, address);
  } else if (what == "ipc_close") {
    Answer(cuIpcCloseMemHandle(words.Next()));
  } else {
    return false;
  }
  return true;
}

void ReadAttribute() {
  cuuint64_t bytes = 0;
  const CUresult code =
      cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
  Answer(code, bytes);
}

void Perform(const std::string& what, Words& words) {
  if (what == "create") return Create(words);
  if (what == "array") return MakeArray(words);
  if (what == "drop") return DropArray(words);
  if (what == "tile") return MapTile(words);
  if (what == "graph") return MakeGraph(words);
  if (what == "record") return RecordGraph(words);
  if (what == "kernels") return MakeKernels(words);
  if (what == "nest") return Nest(words);
  if (what == "exchange") return Exchange(words);
  if (what == "instantiate") return Instantiate(words);
  if (what == "run") return Run(words);
  if (what == "in_capture") return RunInCapture(words);
  if (what == "update") return Update(words);
  if (what == "end") return Answer(cuGraphExecDestroy(As<CUgraphExec>(words.Next())));
  if (what == "end_graph") return Answer(cuGraphDestroy(As<CUgraph>(words.Next())));
  if (what == "trim") return Answer(cuDeviceGraphMemTrim(0));
  if (what == "give") return GiveKept();
  if (what == "sync") return Answer(cuCtxSynchronize());
  if (what == "leave") {
    CUcontext context = nullptr;
    MUST(cuCtxGetCurrent(&context));
    return Answer(cuCtxDestroy_v2(context));
  }
  if (what == "multicast") return TryMulticast();
  if (what == "attribute") return ReadAttribute();
  if (what == "pid") return Answer(CUDA_SUCCESS, static_cast<uint64_t>(getpid()));
  uint64_t number = 0;
  if (Descriptors(what, words.line, &number)) {
    const bool done = number != UINT64_MAX;
    return Answer(done ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM, number);
  }
  if (Linear(what, words)) return;
  Physical(what, words);
}

}  // namespace

int main(int argc, char** argv) {
  simtest::UseDevice(0);
  if (argc > 1 && std::string(argv[1]) == "look") {
    std::cout << simtest::UsedBytes() << std::endl;
    return 0;
  }
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Words words{std::istringstream(line)};
    const std::string what = words.Text();
    Perform(what, words);
  }
  return 0;
}
