// Checking kernel launches. Must not know streams, graphs or captures.
#include "cuda/streams/launch.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/devices/context_state.h"
#include "machine/config.h"
#include "machine/timeline.h"

namespace sim::launch {

namespace {

// Keys of the `extra` list of a launch; they are pointers in the API.
constexpr uintptr_t kExtraEnd = 0;
constexpr uintptr_t kExtraBuffer = 1;
constexpr uintptr_t kExtraBytes = 2;

// The kernel by which a GPU's pauses are measured, its global, and what it leaves there.
constexpr char kPace[] = "gpufence_pace";
constexpr char kPaces[] = "gpufence_paces";
constexpr uint32_t kPaceBytes = 2 * sizeof(uint64_t);
struct PaceParameters {
  uint64_t cycles;
  uint32_t index;
};
constexpr uint32_t kPaceParameterBytes = offsetof(PaceParameters, index) + sizeof(uint32_t);

struct Unit {
  const char* suffix;
  uint64_t ns;
};
constexpr Unit kUnits[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};

bool EndsWith(const char* text, const char* suffix) {
  const size_t length = strlen(text);
  const size_t suffix_length = strlen(suffix);
  return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

// The 150'000 in "spin_150us"; 0 when the name says nothing.
uint64_t NamedNs(const char* name) {
  const char* last = strrchr(name, '_');
  if (last == nullptr || last[1] < '0' || last[1] > '9') return 0;
  char* unit = nullptr;
  const uint64_t count = strtoull(last + 1, &unit, 10);
  for (const Unit& candidate : kUnits) {
    if (strcmp(unit, candidate.suffix) == 0) return count * candidate.ns;
  }
  return 0;
}

bool IsShapeValid(const Request& request, const module::Function& function) {
  const uint32_t* grid = request.grid;
  const uint32_t* block = request.block;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return false;
  if (grid[0] > kMaxGridX || grid[1] > kMaxGridYz || grid[2] > kMaxGridYz) return false;
  if (block[0] == 0 || block[1] == 0 || block[2] == 0 || block[2] > kMaxBlockZ) return false;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  const uint32_t most =
      function.entry->max_threads != 0 ? function.entry->max_threads : kMaxThreadsPerBlock;
  return threads <= most;
}

bool IsSharedValid(const Request& request, const module::Function& function) {
  const int optin = function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  const uint64_t most = optin > 0 ? static_cast<uint64_t>(optin) : kSharedPerBlock;
  return uint64_t{request.shared_bytes} + function.entry->shared_bytes <= most ||
         request.shared_bytes == 0;
}

// The parameters as one packed block, from whichever form the program gave.
CUresult Pack(const Request& request, const image::Entry& entry, ParameterRoom* room,
              uint32_t* bytes) {
  *bytes = 0;
  if (request.extra != nullptr) {
    if (request.parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* buffer = nullptr;
    size_t buffer_bytes = 0;
    for (void** at = request.extra; reinterpret_cast<uintptr_t>(*at) != kExtraEnd; at += 2) {
      const auto key = reinterpret_cast<uintptr_t>(*at);
      if (key == kExtraBuffer) buffer = at[1];
      if (key == kExtraBytes) buffer_bytes = *static_cast<size_t*>(at[1]);
    }
    if (buffer == nullptr || buffer_bytes > sizeof(room->bytes)) return CUDA_SUCCESS;
    memcpy(room->bytes, buffer, buffer_bytes);
    *bytes = static_cast<uint32_t>(buffer_bytes);
    return CUDA_SUCCESS;
  }
  if (entry.parameter_bytes > sizeof(room->bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!entry.parameters.empty() && request.parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    const image::Parameter& parameter = entry.parameters[i];
    memcpy(room->bytes + parameter.offset, request.parameters[i], parameter.bytes);
  }
  *bytes = entry.parameter_bytes;
  // An opaque image: only the duration of a spinning kernel is worth a guess.
  if (!entry.has_signature && request.parameters != nullptr && EndsWith(entry.name, "spin_ns")) {
    memcpy(room->bytes, request.parameters[0], sizeof(uint64_t));
    *bytes = sizeof(uint64_t);
  }
  return CUDA_SUCCESS;
}

}  // namespace

uint64_t DurationNs(const char* name, const uint8_t* parameters, uint32_t parameter_bytes) {
  const bool says_it = EndsWith(name, "_ns") || strcmp(name, kPace) == 0;
  if (says_it && parameter_bytes >= sizeof(uint64_t)) {
    uint64_t ns = 0;
    memcpy(&ns, parameters, sizeof(ns));
    return ns;
  }
  const uint64_t named_ns = NamedNs(name);
  if (named_ns != 0) return named_ns;
  const Config* config = GetConfig();
  return config != nullptr ? config->kernel_ns : 1;
}

void SpendOnLaunch() {
  const Config* config = GetConfig();
  if (config != nullptr && config->launch_ns != 0) BeBusy(config->launch_ns);
}

uint64_t PacesOf(const module::Function& function, const uint8_t* parameters,
                 uint32_t parameter_bytes) {
  if (strcmp(function.entry->name, kPace) != 0 || parameter_bytes < kPaceParameterBytes) return 0;
  const module::Module* module = module::FindByHandle(function.module);
  CUdeviceptr paces = 0;
  size_t bytes = 0;
  const bool has_paces =
      module != nullptr && module::GetVariable(*module, kPaces, &paces, &bytes) == CUDA_SUCCESS;
  uint32_t index = 0;
  memcpy(&index, parameters + offsetof(PaceParameters, index), sizeof index);
  return has_paces && index < bytes / kPaceBytes ? paces + uint64_t{index} * kPaceBytes : 0;
}

Meeting MeetingOf(const char* name, const uint8_t* parameters, uint32_t parameter_bytes,
                  int device) {
  constexpr char kMeeting[] = "ncclDevKernel";
  uint64_t values[4] = {0, 0, 0, static_cast<uint64_t>(device)};
  const uint32_t most = parameter_bytes < sizeof values ? 2 * sizeof(uint64_t) : sizeof values;
  if (strncmp(name, kMeeting, sizeof kMeeting - 1) != 0 || parameter_bytes < most) return {};
  memcpy(values, parameters, most);
  const auto [length_ns, ranks, group, rank] = values;
  if (ranks > kMostMeetingRanks || group >= kMeetingGroups || rank >= ranks) return {};
  return {static_cast<uint8_t>(ranks), static_cast<uint8_t>(group), static_cast<uint8_t>(rank)};
}

uint32_t BlocksPerSm(const module::Function& function, uint32_t threads, size_t dynamic_bytes) {
  if (threads == 0 || threads > kMaxThreadsPerBlock) return 0;
  const uint32_t rounded = (threads + kWarp - 1) / kWarp * kWarp;
  const uint64_t shared = function.entry->shared_bytes + dynamic_bytes + kSharedReserved;
  uint64_t blocks = kThreadsPerSm / rounded;
  if (blocks > kBlocksPerSm) blocks = kBlocksPerSm;
  if (blocks > kSharedPerSm / shared) blocks = kSharedPerSm / shared;
  return static_cast<uint32_t>(blocks);
}

CUresult Prepare(const Request& request, ParameterRoom* room, Operation* operation) {
  module::Function* function = nullptr;
  CUresult result = module::ResolveFunction(request.function, &function);
  if (result != CUDA_SUCCESS) return result;
  context::Context* context = context::Find(AsHandle<CUcontext>(function->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!IsShapeValid(request, *function) || !IsSharedValid(request, *function)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = MakeOperation(CU_GRAPH_NODE_TYPE_KERNEL, *context);
  KernelLaunch& kernel = operation->kernel;
  result = Pack(request, *function->entry, room, &kernel.parameter_bytes);
  if (result != CUDA_SUCCESS) return result;

  kernel.function = HandleValue(request.function);
  kernel.shared_bytes = request.shared_bytes;
  kernel.cooperative = request.cooperative;
  memcpy(kernel.grid, request.grid, sizeof(kernel.grid));
  memcpy(kernel.block, request.block, sizeof(kernel.block));
  kernel.parameters = room->bytes;
  kernel.duration_ns = DurationNs(function->entry->name, room->bytes, kernel.parameter_bytes);
  kernel.meets =
      MeetingOf(function->entry->name, room->bytes, kernel.parameter_bytes, operation->device);
  kernel.paces = PacesOf(*function, room->bytes, kernel.parameter_bytes);
  if (request.cooperative) {
    const uint64_t blocks = uint64_t{request.grid[0]} * request.grid[1] * request.grid[2];
    const uint32_t threads = request.block[0] * request.block[1] * request.block[2];
    const uint64_t room_for = uint64_t{BlocksPerSm(*function, threads, request.shared_bytes)} *
                              static_cast<uint64_t>(context->sm_count);
    if (blocks > room_for) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

CUresult Provide(const Operation& operation) {
  module::Function* function = nullptr;
  const CUresult result =
      module::ResolveFunction(AsHandle<CUfunction>(operation.kernel.function), &function);
  if (result != CUDA_SUCCESS) return result;
  context::Context* context = context::Find(AsHandle<CUcontext>(function->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!context::GrowStack(context, function->entry->local_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  return module::LoadFunction(function);
}

}  // namespace sim::launch
