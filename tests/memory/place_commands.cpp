// link: cuda
// flags: -Wl,-z,lazy
// Memory asked for at places given by their numbers, on command. One command a line on stdin, one
// line of numbers as the answer, the driver's code first; handles are numbers. TYPE is that of a
// location, or of a graph's node; a location's DEVICE counts for whatever the type calls it.
//
//   create TYPE DEVICE BYTES       code, handle: cuMemCreate
//   release H
//   pool TYPE DEVICE               code, pool: cuMemPoolCreate
//   given WHICH TYPE DEVICE        code, pool: the "default" or the "current" one of a place
//   alloc POOL BYTES               cuMemAllocFromPoolAsync, and waits
//   graph FORM TYPE DEVICE BYTES   code, graph, node: an allocation; FORM: old, v1, v2, v3
//   node TYPE                      code, graph: one node without parameters
//   around GRAPH                   code, graph, node: GRAPH as a child
//   instantiate GRAPH | launch E | update E GRAPH
//   swap E NODE GRAPH              cuGraphExecNodeSetParams: another child
//   limit NUMBER VALUE             cuCtxSetLimit
//   domain POOL                    code, CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID
#include <iostream>
#include <sstream>
#include <string>

#include "support/sim_program.h"

namespace {

constexpr uint8_t kDomain = 1;

CUstream stream = nullptr;

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
};

template <typename... Numbers>
void Answer(CUresult code, Numbers... numbers) {
  std::cout << static_cast<int>(code);
  ((std::cout << ' ' << numbers), ...);
  std::cout << std::endl;
}

CUmemLocation ReadLocation(Words& words) {
  CUmemLocation location = {};
  location.type = static_cast<CUmemLocationType>(words.Next());
  const uint64_t device = words.Next();
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN) {
    location.localized = {static_cast<unsigned char>(device), kDomain};
  } else {
    location.id = static_cast<int>(device);
  }
  return location;
}

void Create(Words& words) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = ReadLocation(words);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = cuMemCreate(&handle, words.Next(), &prop, 0);
  Answer(code, handle);
}

void MakePool(Words& words) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = ReadLocation(words);
  CUmemoryPool pool = nullptr;
  const CUresult code = cuMemPoolCreate(&pool, &props);
  Answer(code, Number(pool));
}

void GivenPool(Words& words) {
  const bool is_default = words.Text() == "default";
  CUmemLocation location = ReadLocation(words);
  CUmemoryPool pool = nullptr;
  const CUresult code =
      is_default ? cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED)
                 : cuMemGetMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
  Answer(code, Number(pool));
}

void Allocate(Words& words) {
  const auto pool = As<CUmemoryPool>(words.Next());
  CUdeviceptr address = 0;
  const CUresult code = cuMemAllocFromPoolAsync(&address, words.Next(), pool, stream);
  if (code == CUDA_SUCCESS) MUST(cuStreamSynchronize(stream));
  Answer(code, address);
}

CUresult AddNode(const std::string& form, CUgraph graph, CUgraphNodeParams* params,
                 CUgraphNode* node) {
  if (form == "old") {  // takes the first form of the parameters, with which the second begins
    auto* first = reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS_v1*>(&params->alloc);
    return cuGraphAddMemAllocNode(node, graph, nullptr, 0, first);
  }
  if (form == "v1") return cuGraphAddNode(node, graph, nullptr, 0, params);
  if (form == "v2") return cuGraphAddNode_v2(node, graph, nullptr, nullptr, 0, params);
  return cuGraphAddNode_v3(node, graph, nullptr, nullptr, 0, params);
}

void MakeGraph(CUgraphNodeParams params, const std::string& form) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  const CUresult code = AddNode(form, graph, &params, &node);
  Answer(code, Number(graph), Number(node));
}

void MakeAllocation(Words& words) {
  const std::string form = words.Text();
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.alloc.poolProps.location = ReadLocation(words);
  params.alloc.bytesize = words.Next();
  MakeGraph(params, form);
}

void MakeNode(Words& words) {
  CUgraphNodeParams params = {};
  params.type = static_cast<CUgraphNodeType>(words.Next());
  MakeGraph(params, "v3");
}

CUgraphNodeParams Child(uint64_t graph) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = As<CUgraph>(graph);
  return params;
}

void Instantiate(Words& words) {
  CUgraphExec executable = nullptr;
  const CUresult code = cuGraphInstantiateWithFlags(&executable, As<CUgraph>(words.Next()), 0);
  Answer(code, Number(executable));
}

void Launch(Words& words) {
  const CUresult code = cuGraphLaunch(As<CUgraphExec>(words.Next()), stream);
  if (code == CUDA_SUCCESS) MUST(cuStreamSynchronize(stream));
  Answer(code);
}

void Update(Words& words) {
  const auto executable = As<CUgraphExec>(words.Next());
  CUgraphExecUpdateResultInfo info = {};
  Answer(cuGraphExecUpdate_v2(executable, As<CUgraph>(words.Next()), &info));
}

void Swap(Words& words) {
  const auto executable = As<CUgraphExec>(words.Next());
  const auto node = As<CUgraphNode>(words.Next());
  CUgraphNodeParams params = Child(words.Next());
  Answer(cuGraphExecNodeSetParams(executable, node, &params));
}

void ReadDomain(Words& words) {
  int domain = 0;
  const CUresult code = cuMemPoolGetAttribute(As<CUmemoryPool>(words.Next()),
                                              CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, &domain);
  Answer(code, domain);
}

void Perform(const std::string& what, Words& words) {
  if (what == "create") return Create(words);
  if (what == "release") return Answer(cuMemRelease(words.Next()));
  if (what == "pool") return MakePool(words);
  if (what == "given") return GivenPool(words);
  if (what == "alloc") return Allocate(words);
  if (what == "graph") return MakeAllocation(words);
  if (what == "node") return MakeNode(words);
  if (what == "around") return MakeGraph(Child(words.Next()), "v1");
  if (what == "instantiate") return Instantiate(words);
  if (what == "launch") return Launch(words);
  if (what == "update") return Update(words);
  if (what == "swap") return Swap(words);
  if (what == "domain") return ReadDomain(words);
  const auto limit = static_cast<CUlimit>(words.Next());
  Answer(cuCtxSetLimit(limit, words.Next()));
}

}  // namespace

int main() {
  simtest::UseDevice(0);
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Words words{std::istringstream(line)};
    const std::string what = words.Text();
    Perform(what, words);
  }
  return 0;
}
