// What a stream can be told to do, as data: the same description is performed on a stream, kept as
// a graph node, and recorded by a capture.
//
// Owns the translation of an operation into work: its engine, its duration, its effect on memory.
// Must not know: streams, graphs, captures, who asked.
#pragma once

#include <stdint.h>

#include "cuda/devices/context.h"
#include "cuda/streams/timeline.h"
#include "driver_abi.h"
#include "machine/vec.h"

namespace sim {

struct KernelLaunch {
  uint64_t function;  // handle of a function or kernel
  uint64_t duration_ns;
  Meeting meets;   // the counterparts that it waits for
  uint64_t paces;  // device memory that gets its begin and its end when it is done; 0: none
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  bool cooperative;
  uint8_t* parameters;  // owned copy of the packed parameters; null when nobody will ask again
  uint32_t parameter_bytes;
};

// A function of the program. Callbacks are the older form, with the stream and a status.
struct HostCall {
  CUhostFn function;
  CUstreamCallback callback;
  CUstream stream;
  void* argument;
};

// A conditional node: its bodies, one of which is performed, or none.
struct Condition {
  CUgraphConditionalHandle handle;
  CUgraphConditionalNodeType type;
  Vec<uint64_t> bodies;  // owned graphs
};

struct Operation {
  CUgraphNodeType type;
  uint64_t context;  // handle
  int device;        // the machine's index
  int sm_count;      // what the context may fill
  union {
    KernelLaunch kernel;
    CUDA_MEMCPY3D_v2 copy;
    CUDA_MEMSET_NODE_PARAMS_v2 fill;
    HostCall host;
    uint64_t event;  // handle: EVENT_RECORD, WAIT_EVENT
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 allocation;
    CUdeviceptr freed;
    Vec<CUstreamBatchMemOpParams> memory_ops;  // owned
    uint64_t graph;                            // GRAPH: handle of an owned clone
    Condition condition;
  };
};

// An operation of this type in a context, otherwise zeroed.
Operation MakeOperation(CUgraphNodeType type, const context::Context& context);

// A deep copy; false (and nothing owned) when memory is exhausted.
bool CloneOperation(const Operation& from, Operation* to);
void DisposeOperation(Operation* operation);

// What lies between an operation and what it is behind: the pause in a stream, the one between two
// nodes of a graph, or none, since it begins before the other has ended.
enum class Pause : uint8_t { kLaunch, kStep, kNone };

// What an operation is put behind. Null: behind nothing.
struct Behind {
  Work* work;
  int priority;  // the stream's
  Pause pause = Pause::kLaunch;
  bool on_copies = false;  // a copy between host and device was the last that took time there
};

// Submits the operation behind others and returns its last piece of work,
// with a reference for the caller. Null: memory is exhausted, or *result says what is wrong; then
// nothing was submitted. Bytes move at once when nothing is pending that decides them, because
// memory given back in stream order is gone at once too; otherwise they move when due.
Work* Perform(TimelineLock& lock, const Operation& operation, const Behind& behind,
              CUresult* result);

// A point in time behind `count` others; null entries are allowed. Reference for the caller.
Work* Join(TimelineLock& lock, Work* const* before, size_t count);

// Copies. A plain copy of bytes between unified addresses as the general description:
CUDA_MEMCPY3D_v2 PlainCopy(uint64_t dst, uint64_t src, size_t bytes);

// Where an end of a copy lies, by what the memory under it is.
enum class Side : uint8_t { kPageable, kPinned, kDevice };
Side SourceSide(const CUDA_MEMCPY3D_v2& copy);
Side DestinationSide(const CUDA_MEMCPY3D_v2& copy);

// CUDA_SUCCESS when the description could be performed as far as can be told beforehand.
CUresult ValidateCopy(const CUDA_MEMCPY3D_v2& copy);

// Moves the bytes now.
CUresult MoveBytes(const CUDA_MEMCPY3D_v2& copy);
CUresult FillBytes(const CUDA_MEMSET_NODE_PARAMS_v2& fill);

}  // namespace sim
