// link: cuda
// flags: -Wl,-z,lazy
// Facts: what of a device's memory the open files of dma-bufs and pools hold, beside its owner and
// after him.

#include <unistd.h>

#include <initializer_list>
#include <string>

#include "gpu.h"

namespace conformance {
namespace {

constexpr size_t kWhole = 64 * kMib;

CUresult MakeDmaBuf(int* fd, CUdeviceptr address, size_t bytes) {
  *fd = -1;
  return cuMemGetHandleForAddressRange(fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

// What is held of memory that begins with this free memory, freed and then closed.
void HeldBy(Facts& facts, const std::string& name, size_t before, int fd) {
  facts.Number(name + ".freed_holds", DroppedSince(before));
  close(fd);
  facts.Number(name + ".closed_holds", DroppedSince(before));
}

void Linear(Facts& facts, const std::string& name, size_t bytes, size_t in_file) {
  const size_t before = FreeBytes();
  CUdeviceptr address = 0;
  cuMemAlloc_v2(&address, bytes);
  int fd = -1;
  facts.Code(name, MakeDmaBuf(&fd, address, in_file));
  cuMemFree_v2(address);
  HeldBy(facts, name, before, fd);
}

// `parts` mappings in a row, 64 MiB in all, of which a range goes into a file.
void Mapped(Facts& facts, size_t parts, size_t from_mib, size_t mib) {
  const std::string name = std::to_string(parts) + "_mapped.from_" + std::to_string(from_mib) +
                           "_" + std::to_string(mib) + "_MiB";
  const size_t before = FreeBytes();
  const size_t part = kWhole / parts;
  CUdeviceptr range = 0;
  cuMemAddressReserve(&range, kWhole, 0, 0, 0);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  for (size_t at = 0; at < kWhole; at += part) {
    CUmemGenericAllocationHandle handle = 0;
    cuMemCreate(&handle, part, &prop, 0);
    cuMemMap(range + at, part, 0, handle, 0);
    cuMemRelease(handle);
  }
  int fd = -1;
  facts.Code(name, MakeDmaBuf(&fd, range + from_mib * kMib, mib * kMib));
  cuMemUnmap(range, kWhole);
  HeldBy(facts, name, before, fd);
  cuMemAddressFree(range, kWhole);
}

void Twice(Facts& facts) {
  const size_t before = FreeBytes();
  CUdeviceptr address = 0;
  cuMemAlloc_v2(&address, kWhole);
  int first = -1;
  int second = -1;
  MakeDmaBuf(&first, address, kWhole);
  MakeDmaBuf(&second, address, kWhole);
  cuMemFree_v2(address);
  close(first);
  HeldBy(facts, "linear.second_file", before, second);
}

void Managed(Facts& facts) {
  CUdeviceptr address = 0;
  int fd = -1;
  cuMemAllocManaged(&address, kWhole, CU_MEM_ATTACH_GLOBAL);
  facts.Code("managed", MakeDmaBuf(&fd, address, kWhole));
  cuMemFree_v2(address);
}

// Pieces whose pointers went out stay in the pool's file, though the pool has lost them.
void Pool(Facts& facts) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  cuMemPoolCreate(&pool, &props);
  const Stream stream;
  const size_t before = FreeBytes();
  CUdeviceptr address = 0;
  cuMemAllocFromPoolAsync(&address, kWhole, pool, stream.get());
  int fd = -1;
  cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  CUmemPoolPtrExportData ticket{};
  facts.Code("pool.export_pointer", cuMemPoolExportPointer(&ticket, address));
  close(fd);
  cuMemFreeAsync(address, stream.get());
  cuStreamSynchronize(stream.get());
  cuMemPoolTrimTo(pool, 0);
  cuuint64_t reserved = 0;
  cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  facts.Number("pool.freed_reserves", static_cast<long long>(reserved));
  facts.Number("pool.freed_holds", DroppedSince(before));
  cuMemPoolDestroy(pool);
  facts.Number("pool.destroyed_holds", DroppedSince(before));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("exports");
  UsePrimary(FirstDevice(facts));
  Linear(facts, "linear.page_of_64_MiB", kWhole, 4 * kKib);
  Linear(facts, "linear.page_of_64_KiB", 64 * kKib, 4 * kKib);
  Linear(facts, "linear.3_MiB", 3 * kMib, 4 * kKib);
  for (const size_t parts : {size_t{1}, size_t{4}}) {
    Mapped(facts, parts, 0, 64);
    Mapped(facts, parts, 0, 16);
    Mapped(facts, parts, 16, 16);
    Mapped(facts, parts, 8, 16);
    Mapped(facts, parts, 8, 40);
  }
  Twice(facts);
  Managed(facts);
  Pool(facts);
  return 0;
}
