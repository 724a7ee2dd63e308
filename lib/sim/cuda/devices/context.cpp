// Contexts: the table, the primary contexts, the per-thread stack and what ending one means.
//
// Must not know the API's entry points (context_api.cpp) nor what lives in a context.
#include "cuda/devices/context.h"

#include <stdlib.h>

#include "cuda/devices/context_state.h"
#include "cuda/devices/device.h"
#include "cuda/memory/memory.h"
#include "machine/machine.h"
#include "machine/vec.h"

namespace sim {
namespace {

constinit pthread_mutex_t g_driver_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

}  // namespace

DriverLock::DriverLock() { pthread_mutex_lock(&g_driver_mutex); }
DriverLock::~DriverLock() { pthread_mutex_unlock(&g_driver_mutex); }

namespace context {
namespace {

using Stack = Vec<uint64_t>;

constinit Table<Context, Kind::kContext> g_contexts;
constinit uint64_t g_primaries[kMaxDevices] = {};  // handles, 0 = never retained
constinit unsigned g_primary_flags[kMaxDevices] = {};
constinit uint64_t g_next_id = 1;

// One pointer of thread-local storage: a dlopened library has little of the static kind.
constinit thread_local Stack* t_stack = nullptr;
constinit pthread_key_t g_stack_key = 0;
constinit pthread_once_t g_stack_once = PTHREAD_ONCE_INIT;

void FreeStack(void* stack) {
  static_cast<Stack*>(stack)->Free();
  free(stack);
}

void MakeStackKey() { pthread_key_create(&g_stack_key, FreeStack); }

// The calling thread's stack, made at its first use; nullptr when memory is exhausted.
Stack* OwnStack() {
  if (t_stack != nullptr) return t_stack;
  pthread_once(&g_stack_once, MakeStackKey);
  t_stack = static_cast<Stack*>(calloc(1, sizeof(Stack)));
  if (t_stack != nullptr) pthread_setspecific(g_stack_key, t_stack);
  return t_stack;
}

// Takes the bytes of an empty context and fills it.  False: out of memory, nothing is taken.
bool Start(Context* context, int device, unsigned flags) {
  const uint64_t bytes = GetConfig()->context_bytes;
  if (!memory::ChargeHidden(device, bytes)) return false;
  context->device = device;
  context->flags = flags;
  context->active = true;
  context->references = 1;
  context->api_version = 3020;
  context->sm_count = device::SmCount(device);
  context->footprint_bytes = bytes;
  context->unique_id = g_next_id++;
  ResetLimits(context);
  machine::CountContext(device::Physical(device), 1);
  return true;
}

// Ends everything in a context and gives its bytes back; the object itself stays.
void Stop(Context* context) {
  if (EndModulesOf != nullptr) EndModulesOf(context);
  if (EndStreamsOf != nullptr) EndStreamsOf(context);
  EndArraysOf(context);
  EndPeersOf(context);
  EndMemoryOf(context);
  ReleaseLimits(context);
  memory::ReleaseHidden(context->device, context->footprint_bytes);
  memory::ReleaseHidden(context->device, context->channel_bytes);
  context->footprint_bytes = 0;
  context->channel_bytes = 0;
  context->streams = 0;
  context->active = false;
  context->references = 0;
  if (context->green == 0) machine::CountContext(device::Physical(context->device), -1);
}

Context* PrimaryOf(int device) {
  return g_primaries[device] != 0 ? g_contexts.Find(g_primaries[device]) : nullptr;
}

}  // namespace

CUresult Current(Context** current) {
  if (stream::IsInHostFunction != nullptr && stream::IsInHostFunction()) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  const uint64_t handle = CurrentHandle();
  if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Context* context = g_contexts.Find(handle);
  if (context == nullptr || !context->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *current = context;
  return CUDA_SUCCESS;
}

Context* Find(CUcontext handle) { return g_contexts.Find(handle); }

bool HasEnded(CUcontext handle) { return g_contexts.HasEnded(HandleValue(handle)); }

int PhysicalDevice(const Context& context) { return device::Physical(context.device); }

void ForEach(void (*visit)(Context* context, void* arg), void* arg) {
  g_contexts.ForEach([&](uint64_t, Context* context) {
    if (context->active) visit(context, arg);
  });
}

CUresult Create(int device, unsigned flags, Context** created) {
  uint64_t handle = 0;
  Context* context = g_contexts.Create(&handle);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  context->handle = handle;
  if (!Start(context, device, flags)) {
    g_contexts.Destroy(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *created = context;
  return CUDA_SUCCESS;
}

Context* CreateGreenView(uint64_t green, int device, int sm_count) {
  uint64_t handle = 0;
  Context* context = g_contexts.Create(&handle);
  if (context == nullptr) return nullptr;
  context->handle = handle;
  context->device = device;
  context->active = true;
  context->references = 1;
  context->api_version = 3020;
  context->green = green;
  context->sm_count = sm_count;
  context->unique_id = g_next_id++;
  ResetLimits(context);
  return context;
}

void Destroy(Context* context) {
  const uint64_t handle = context->handle;
  Stop(context);
  g_contexts.Destroy(handle);
  Stack* stack = OwnStack();
  if (stack != nullptr && !stack->empty() && stack->back() == handle) stack->Pop();
}

CUresult RetainPrimary(int device, Context** primary) {
  Context* context = PrimaryOf(device);
  if (context == nullptr) {
    uint64_t handle = 0;
    context = g_contexts.Create(&handle);
    if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    context->handle = handle;
    context->is_primary = true;
    g_primaries[device] = handle;
  }
  const uint32_t references = context->references;  // a reset leaves them
  if (!context->active && !Start(context, device, g_primary_flags[device])) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->references = references + 1;
  *primary = context;
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(int device) {
  Context* context = PrimaryOf(device);
  if (context == nullptr || context->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->references == 0 && context->active) Stop(context);
  return CUDA_SUCCESS;
}

void ResetPrimary(int device) {
  Context* context = PrimaryOf(device);
  if (context == nullptr || !context->active) return;
  const uint32_t references = context->references;
  Stop(context);
  context->references = references;
}

void SetPrimaryFlags(int device, unsigned flags) {
  g_primary_flags[device] = flags;
  Context* context = PrimaryOf(device);
  if (context != nullptr) context->flags = flags;
}

const Context* Primary(int device) { return PrimaryOf(device); }

unsigned PrimaryFlags(int device) { return g_primary_flags[device]; }

bool IsPrimaryActive(int device) {
  const Context* context = PrimaryOf(device);
  return context != nullptr && context->active;
}

uint64_t CurrentHandle() {
  const Stack* stack = t_stack;
  return stack != nullptr && !stack->empty() ? stack->begin()[stack->size() - 1] : 0;
}

bool Push(uint64_t handle) {
  Stack* stack = OwnStack();
  return stack != nullptr && stack->Push(handle);
}

bool Pop(uint64_t* handle) {
  Stack* stack = OwnStack();
  if (stack == nullptr || stack->empty()) return false;
  *handle = stack->back();
  stack->Pop();
  return true;
}

bool Replace(uint64_t handle) {
  Stack* stack = OwnStack();
  if (stack == nullptr) return false;
  if (!stack->empty()) stack->Pop();
  return handle == 0 || stack->Push(handle);
}

}  // namespace context
}  // namespace sim
