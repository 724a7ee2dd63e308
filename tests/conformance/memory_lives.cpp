// link: cuda
// flags: -Wl,-z,lazy
// Facts: memory that outlives the call that gives it up, and memory that a call takes beside what
// was asked for: late frees, what only a descriptor keeps, heaps of small arrays, channels.

#include <unistd.h>

#include <string>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 64 * kMib;

CUmemAllocationProp Shareable(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// ---- late frees ----

// Plain memory that is freed in a stream's order: who must wait for it to be gone?
void LateFrees(Facts& facts) {
  Stream stream;
  CUdeviceptr address = 0;
  const size_t before = FreeBytes();
  cuMemAlloc_v2(&address, kBytes);
  facts.Number("late.takes", DroppedSince(before));
  facts.Code("late.free_async", cuMemFreeAsync(address, stream.get()));
  facts.Number("late.after_the_call", DroppedSince(before));
  usleep(20'000);
  facts.Code("late.stream_query", cuStreamQuery(stream.get()));
  facts.Number("late.after_a_stream_query", DroppedSince(before));
  Event event;
  cuEventRecord(event.get(), stream.get());
  usleep(20'000);
  facts.Is("late.event_done", event.done());
  facts.Number("late.after_an_event_query", DroppedSince(before));
  cuStreamSynchronize(stream.get());
  facts.Number("late.after_a_wait_for_the_stream", DroppedSince(before));

  cuMemAlloc_v2(&address, kBytes);
  cuMemFreeAsync(address, stream.get());
  cuCtxSynchronize();
  facts.Number("late.after_a_wait_for_the_context", DroppedSince(before));
}

// ---- what only a descriptor keeps ----

void Descriptors(Facts& facts, CUdevice device) {
  const CUmemAllocationProp prop = Shareable(device);
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
  const size_t before = FreeBytes();
  cuMemCreate(&handle, kBytes, &prop, 0);
  facts.Code("descriptor.export",
             cuMemExportToShareableHandle(&descriptor, handle,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  facts.Code("descriptor.release", cuMemRelease(handle));
  facts.Number("descriptor.keeps", DroppedSince(before));
  const int copy = dup(descriptor);
  close(descriptor);
  facts.Number("descriptor.copy_keeps", DroppedSince(before));
  facts.Code("descriptor.import", cuMemImportFromShareableHandle(
                                      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(copy)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(copy);
  facts.Number("descriptor.import_keeps", DroppedSince(before));
  facts.Code("descriptor.release_import", cuMemRelease(handle));
  facts.Number("descriptor.all_gone", DroppedSince(before));
}

// A pool that others may open, and its memory.
void ExportedPools(Facts& facts, CUdevice device) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  Stream stream;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  int descriptor = -1;
  const size_t before = FreeBytes();
  facts.Code("pool.create", cuMemPoolCreate(&pool, &props));
  facts.Code("pool.alloc", cuMemAllocFromPoolAsync(&address, kBytes, pool, stream.get()));
  cuStreamSynchronize(stream.get());
  facts.Number("pool.takes", DroppedSince(before));
  facts.Code("pool.export", cuMemPoolExportToShareableHandle(
                                &descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  facts.Number("pool.exported_takes", DroppedSince(before));
  cuMemFreeAsync(address, stream.get());
  cuStreamSynchronize(stream.get());
  facts.Number("pool.freed_keeps", DroppedSince(before));
  facts.Code("pool.trim", cuMemPoolTrimTo(pool, 0));
  facts.Number("pool.trimmed_keeps", DroppedSince(before));
  cuMemAllocFromPoolAsync(&address, kBytes, pool, stream.get());
  cuMemFreeAsync(address, stream.get());
  facts.Code("pool.destroy", cuMemPoolDestroy(pool));
  cuStreamSynchronize(stream.get());
  facts.Number("pool.descriptor_keeps", DroppedSince(before));
  close(descriptor);
  facts.Number("pool.all_gone", DroppedSince(before));
}

// The pools of the host that drivers from CUDA 13 on have from the start.
void HostPools(Facts& facts) {
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemoryPool pool = nullptr;
  Stream stream;
  CUdeviceptr address = 0;
  facts.Code("host_pool.default",
             cuMemGetDefaultMemPool(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  const size_t before = FreeBytes();
  facts.Code("host_pool.alloc", cuMemAllocFromPoolAsync(&address, kBytes, pool, stream.get()));
  cuStreamSynchronize(stream.get());
  facts.Number("host_pool.takes", DroppedSince(before));
  cuMemFreeAsync(address, stream.get());
  cuStreamSynchronize(stream.get());
  facts.Number("host_pool.freed_leaves", DroppedSince(before));
}

// ---- heaps of small arrays ----

CUarray SmallArray(size_t side, size_t depth, CUarray_format format, unsigned channels) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = side;
  shape.Height = side;
  shape.Depth = depth;
  shape.Format = format;
  shape.NumChannels = channels;
  CUarray array = nullptr;
  cuArray3DCreate_v2(&array, &shape);
  return array;
}

// Each beside all that were made before it.
void ArrayHeaps(Facts& facts, CUdevice device) {
  CUcontext context = nullptr;
  cuCtxCreate_v2(&context, 0, device);
  CUdeviceptr small = 0;
  cuMemAlloc_v2(&small, 512);
  size_t before = FreeBytes();
  const auto takes = [&](const char* name) {
    facts.Number(std::string("array_heap.") + name, DroppedSince(before));
    before = FreeBytes();
  };
  std::vector<CUarray> arrays;
  const auto make = [&](const char* name, size_t depth, CUarray_format format, unsigned channels) {
    arrays.push_back(SmallArray(32, depth, format, channels));
    takes(name);
  };
  make("beside_linear", 0, CU_AD_FORMAT_FLOAT, 1);
  make("the_same_again", 0, CU_AD_FORMAT_FLOAT, 1);
  make("elements_as_large", 0, CU_AD_FORMAT_UNSIGNED_INT8, 4);
  make("elements_of_8", 0, CU_AD_FORMAT_FLOAT, 2);
  make("elements_of_1", 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  make("deep", 16, CU_AD_FORMAT_FLOAT, 1);
  make("deep_again", 16, CU_AD_FORMAT_FLOAT, 1);
  CUcontext other = nullptr;
  cuCtxCreate_v2(&other, 0, device);
  before = FreeBytes();
  make("another_context", 0, CU_AD_FORMAT_FLOAT, 1);
  cuArrayDestroy(arrays.back());
  arrays.pop_back();
  cuCtxDestroy_v2(other);
  cuCtxSetCurrent(context);
  before = FreeBytes();
  for (CUarray array : arrays) cuArrayDestroy(array);
  takes("all_freed");
  cuMemFree_v2(small);
  cuCtxDestroy_v2(context);
}

// ---- channels ----

// Streams take device memory: for the most that ever lived in a context at once.
void Channels(Facts& facts, CUdevice device) {
  CUcontext context = nullptr;
  cuCtxCreate_v2(&context, 0, device);
  std::vector<CUstream> streams;
  const size_t before = FreeBytes();
  for (const size_t count : {1, 2, 4, 8, 16, 32, 64, 128}) {
    while (streams.size() < count) {
      CUstream stream = nullptr;
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      streams.push_back(stream);
    }
    facts.Number("channels.of_" + std::to_string(count), DroppedSince(before));
  }
  for (CUstream stream : streams) cuStreamDestroy_v2(stream);
  facts.Number("channels.stay", DroppedSince(before));
  for (CUstream& stream : streams) cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  facts.Number("channels.used_again", DroppedSince(before));
  cuCtxDestroy_v2(context);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("memory_lives");
  const CUdevice device = FirstDevice(facts);
  const CUcontext primary = UsePrimary(device);
  LateFrees(facts);
  Descriptors(facts, device);
  ExportedPools(facts, device);
  HostPools(facts);
  ArrayHeaps(facts, device);
  cuCtxSetCurrent(primary);
  Channels(facts, device);
  return 0;
}
