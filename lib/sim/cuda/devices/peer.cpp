// Peer access between devices.
//
// All simulated devices reach each other; enabling is remembered per pair of contexts, because
// enabling twice and disabling what is not enabled are errors.
#include "cuda/devices/context.h"
#include "cuda/devices/device.h"
#include "machine/calls.h"
#include "machine/vec.h"

namespace {

using sim::DriverLock;
using sim::context::Context;

struct Pair {
  uint64_t from;
  uint64_t to;
};

constinit sim::Vec<Pair> g_pairs = {};

size_t FindPair(const Pair& pair) {
  size_t index = 0;
  while (index < g_pairs.size() &&
         (g_pairs[index].from != pair.from || g_pairs[index].to != pair.to)) {
    ++index;
  }
  return index;
}

bool IsOneDevice(const Pair& pair) {
  const Context* from = sim::context::Find(sim::AsHandle<CUcontext>(pair.from));
  const Context* to = sim::context::Find(sim::AsHandle<CUcontext>(pair.to));
  return from->device == to->device;
}

// The pair of the current context and a peer.
CUresult ResolvePair(CUcontext peer, Pair* pair) {
  Context* current = nullptr;
  const CUresult rc = sim::context::Current(&current);
  if (rc != CUDA_SUCCESS) return rc;
  const Context* other = sim::context::Find(peer);
  if (other == nullptr || !other->active) return CUDA_ERROR_INVALID_CONTEXT;
  *pair = {current->handle, other->handle};
  return CUDA_SUCCESS;
}

}  // namespace

void sim::EndPeersOf(Context* context) {
  for (size_t index = g_pairs.size(); index-- > 0;) {
    const Pair& pair = g_pairs[index];
    if (pair.from == context->handle || pair.to == context->handle) g_pairs.Erase(index);
  }
}

extern "C" {

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  SIM_CALL(cuDeviceCanAccessPeer, canAccessPeer, dev, peerDev);
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev) || !sim::device::IsValid(peerDev)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *canAccessPeer = dev != peerDev ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  SIM_CALL(cuDeviceGetP2PAttribute, value, attrib, srcDevice, dstDevice);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(srcDevice) || !sim::device::IsValid(dstDevice) ||
      srcDevice == dstDevice) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  SIM_CALL(cuCtxEnablePeerAccess, peerContext, Flags);
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Pair pair = {};
  const CUresult rc = ResolvePair(peerContext, &pair);
  if (rc != CUDA_SUCCESS) return rc;
  if (IsOneDevice(pair)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (FindPair(pair) != g_pairs.size()) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  return g_pairs.Push(pair) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  SIM_CALL(cuCtxDisablePeerAccess, peerContext);
  DriverLock lock;
  Pair pair = {};
  const CUresult rc = ResolvePair(peerContext, &pair);
  if (rc != CUDA_SUCCESS) return rc;
  const size_t index = FindPair(pair);
  if (index == g_pairs.size()) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  g_pairs.Erase(index);
  return CUDA_SUCCESS;
}

}  // extern "C"
