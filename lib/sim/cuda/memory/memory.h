// The process's simulated device memory: ranges of addresses, their bytes and whom they belong to.
//
// Owns the address map (ranges.cpp), the arena that gives device addresses real bytes (arena.cpp)
// and the moving of bytes.  Must not know streams or time: it acts at once, on what it is told.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/devices/context.h"
#include "driver_abi.h"

namespace sim::memory {

enum class Family : uint8_t {
  kLinear,  // cuMemAlloc, cuMemAllocPitch
  kManaged,
  kPool,        // stream-ordered
  kMapped,      // VMM mapping
  kReserved,    // VMM addresses without memory
  kImported,    // another process's memory
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kGraph,       // memory of graph nodes
  kArray,       // what an array's view points to; no pointer of the API leads there
  kGlobal,      // a module's variable
  kEnding,      // kLinear until it was freed in a stream's order; there until somebody waits
};

struct Range {
  uintptr_t base;
  size_t bytes;  // as asked for
  Family family;
  bool accessible;     // by the device: false for reserved or not-yet-allowed VMM addresses
  int device;          // logical; -1 for host memory
  uint64_t context;    // owning context's handle, or 0
  uint64_t pool;       // owning pool's handle, or 0
  uint64_t buffer_id;  // CU_POINTER_ATTRIBUTE_BUFFER_ID
  uint64_t charged_bytes;
  uint64_t arena_offset;
  unsigned flags;   // of the call that made it
  uint64_t detail;  // the family's own
};

// The range that holds an address, or nullptr.  DriverLock held; valid while it is held.
Range* FindRange(CUdeviceptr address);

// Whether [address, address+bytes) is device-accessible memory of one range.  For pointers that the
// API types as device pointers; false means CUDA_ERROR_INVALID_VALUE.
bool IsDeviceRange(CUdeviceptr address, size_t bytes);

// Moves bytes between any two places, host or device, overlapping or not.  False (nothing moved)
// when an end lies in the simulator's address space but not in live, accessible memory, or is null.
bool Copy(uint64_t dst, uint64_t src, size_t bytes);

// Fills `count` elements of element_bytes (1, 2 or 4) with value.  False as in Copy.
bool Memset(CUdeviceptr dst, uint32_t value, size_t element_bytes, size_t count);

// Row-wise forms; pitch 0 is not special.  False as in Copy.
bool Memset2D(CUdeviceptr dst, size_t pitch, uint32_t value, size_t element_bytes, size_t width,
              size_t height);

// Arrays hold bytes too: the address of an array's first byte and its row and slice pitch, for
// copies.  False for a handle that is no array or has no memory (sparse, deferred).
struct ArrayView {
  uint64_t address;
  size_t row_bytes;  // of one row of elements
  size_t pitch;      // from row to row
  size_t height;     // at least 1
  size_t depth;      // at least 1; layers count as depth
  size_t element_bytes;
};
bool ViewArray(CUarray array, ArrayView* view);

// What synchronising does to memory: pools give back what exceeds their release threshold, and
// plain memory that was freed in the order of a stream goes.
// `device` is logical.  Called by whoever implements cu*Synchronize, after the wait.
void AfterSynchronize(int device);

// Memory of graphs' allocation nodes, from a pool of its own that keeps what it reserved until
// TrimGraphMemory (cuDeviceGraphMemTrim).  A node's address stands from AllocateForGraph to
// FreeForGraph; bytes are taken from the device at TakeForGraph (a launch; false: no room) and stay
// until GiveForGraph or FreeForGraph.
CUresult AllocateForGraph(int device, size_t bytes, CUdeviceptr* address);
CUresult FreeForGraph(CUdeviceptr address);
bool TakeForGraph(CUdeviceptr address);
void GiveForGraph(CUdeviceptr address);

// What cuDeviceGetGraphMemAttribute tells of a logical device.  False: out of host memory.
struct GraphMemory {
  uint64_t used_bytes;
  uint64_t used_high_bytes;
  uint64_t reserved_bytes;
  uint64_t reserved_high_bytes;
};
bool ReadGraphMemory(int device, GraphMemory* result);
void ResetGraphMemoryPeaks(int device, bool used, bool reserved);
void TrimGraphMemory(int device);

// Charges or gives back device bytes that no address shows: code, heaps, stacks.
bool ChargeHidden(int device, uint64_t bytes);
void ReleaseHidden(int device, uint64_t bytes);

// Ordinary device memory of a context.
CUresult AllocateLinear(context::Context* context, size_t bytes, CUdeviceptr* address);

// Addresses for a module's variable. Its bytes are part of the module, which pays for them.
CUresult AllocateGlobal(const context::Context& context, size_t bytes, CUdeviceptr* address);
void FreeGlobal(CUdeviceptr address);

}  // namespace sim::memory

// Asked of the streams: implemented beside them, weak so that memory stands alone in unit tests.
namespace sim::stream {

// The logical device of a stream and CUDA_SUCCESS, or CUDA_ERROR_INVALID_HANDLE /
// CUDA_ERROR_INVALID_CONTEXT.  Knows the special handles 0, 1 and 2.
[[gnu::weak]] CUresult DeviceOf(CUstream stream, bool per_thread, int* device);

// When the stream is capturing: records the operation as a graph node, sets *captured and returns
// its result.  Otherwise *captured = false.
[[gnu::weak]] CUresult CaptureAllocate(CUstream stream, bool per_thread, int device, size_t bytes,
                                       CUdeviceptr* address, bool* captured);
[[gnu::weak]] CUresult CaptureFree(CUstream stream, bool per_thread, CUdeviceptr address,
                                   bool* captured);

// True when the calling thread may not make a call that would synchronise, because a stream it can
// see is capturing (cuMemAlloc in global capture mode gives 900 and invalidates the capture).
[[gnu::weak]] CUresult RefuseIfCapturing();

// Whether this thread runs a host function or callback, in which most calls are not permitted.
[[gnu::weak]] bool IsInHostFunction();

// Returns when all work that this process has given so far to a context (a handle; 0 = the current
// one, if any) or to a logical device is done. No DriverLock may be held: others go on meanwhile.
// Host functions are such work themselves and return at once.
[[gnu::weak]] void WaitForContext(uint64_t context);
[[gnu::weak]] void WaitForDevice(int device);

}  // namespace sim::stream

// Asked of the graphs, likewise.
namespace sim::graph {

// The program frees memory of a graph's allocation node.  True when a graph still holds the node:
// the memory is then merely no longer allocated, and stays the graph's.
[[gnu::weak]] bool FreeForProgram(CUdeviceptr address);

// Whether a graph holds the memory and no launch has left it allocated: nothing to free.
[[gnu::weak]] bool IsIdle(CUdeviceptr address);

}  // namespace sim::graph
