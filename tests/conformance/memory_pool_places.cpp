// link: cuda
// flags: -Wl,-z,lazy
// Facts: where a pool puts its pieces, how much it grows by, and what it lets go of.

#include <string>
#include <utility>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

// A pool of its own and one stream; pieces are named by the order in which they were taken.
class Pool {
 public:
  Pool(Facts& facts, std::string name, size_t most_bytes, bool keeps)
      : facts_(facts), name_(std::move(name)) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = most_bytes;
    cuMemPoolCreate(&pool_, &props);
    cuuint64_t threshold = keeps ? ~0ULL : 0;
    cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  }
  ~Pool() {
    cuCtxSynchronize();
    cuMemPoolDestroy(pool_);
  }

  // The piece's place, relative to the first one, and what the pool has reserved then.
  CUdeviceptr Take(size_t bytes) {
    CUdeviceptr address = 0;
    const std::string step = Step("take");
    const CUresult code = cuMemAllocFromPoolAsync(&address, bytes, pool_, stream_.get());
    if (code != CUDA_SUCCESS) {
      facts_.Code(step, code);
    } else {
      if (first_ == 0) first_ = address;
      facts_.Number(step + ".place", static_cast<long long>(address - first_));
    }
    Reserved(step);
    return address;
  }
  void Give(CUdeviceptr address) { cuMemFreeAsync(address, stream_.get()); }
  void Wait() {
    cuStreamSynchronize(stream_.get());
    Reserved(Step("wait"));
  }
  void Trim(size_t keep_bytes) {
    cuMemPoolTrimTo(pool_, keep_bytes);
    Reserved(Step("trim"));
  }

 private:
  std::string Step(const char* what) { return name_ + "." + std::to_string(++steps_) + "_" + what; }
  void Reserved(const std::string& step) {
    cuuint64_t bytes = 0;
    cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    facts_.Number(step + ".reserved", static_cast<long long>(bytes));
  }

  Facts& facts_;
  std::string name_;
  Stream stream_;
  CUmemoryPool pool_ = nullptr;
  CUdeviceptr first_ = 0;
  int steps_ = 0;
};

void Placement(Facts& facts) {
  Pool packed(facts, "packed", 0, true);
  for (const size_t mib : {20, 20, 12, 10, 2, 1, 50}) packed.Take(mib * kMib);
  packed.Take(1);
  packed.Take(1000);
  packed.Take(1);

  Pool fitting(facts, "smallest_hole", 0, true);
  const CUdeviceptr eight = fitting.Take(8 * kMib);
  fitting.Take(kMib);
  const CUdeviceptr four = fitting.Take(4 * kMib);
  fitting.Take(kMib);
  const CUdeviceptr six = fitting.Take(6 * kMib);
  fitting.Take(kMib);
  for (const CUdeviceptr piece : {eight, four, six}) fitting.Give(piece);
  fitting.Wait();
  for (const size_t mib : {5, 4, 7}) fitting.Take(mib * kMib);
}

// A block without pieces serves at other addresses; a hole across two half-used ones does not.
void Blocks(Facts& facts) {
  Pool whole(facts, "whole_blocks", 0, true);
  std::vector<CUdeviceptr> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(whole.Take(32 * kMib));
  whole.Give(pieces[0]);
  whole.Give(pieces[2]);
  whole.Wait();
  whole.Take(64 * kMib);
  whole.Take(96 * kMib);

  Pool half(facts, "half_blocks", 0, true);
  pieces.clear();
  for (int i = 0; i < 4; ++i) pieces.push_back(half.Take(16 * kMib));
  half.Give(pieces[0]);
  half.Give(pieces[2]);
  half.Wait();
  half.Take(32 * kMib);
}

void LettingGo(Facts& facts) {
  Pool unawaited(facts, "trim_before_wait", 0, true);
  unawaited.Give(unawaited.Take(100 * kMib));
  unawaited.Trim(0);
  unawaited.Wait();
  unawaited.Trim(60 * kMib);
  unawaited.Trim(0);

  Pool shared(facts, "wait_with_pieces", 0, false);
  const CUdeviceptr first = shared.Take(40 * kMib);
  shared.Take(20 * kMib);
  shared.Give(first);
  shared.Wait();
  shared.Take(20 * kMib);
}

// What may surprise: bare addresses are taken before the rest of the last block.
void BareAddresses(Facts& facts) {
  Pool tail(facts, "bare_or_tail", 0, true);
  CUdeviceptr first = tail.Take(32 * kMib);
  tail.Take(12 * kMib);
  tail.Give(first);
  tail.Wait();
  tail.Trim(0);
  tail.Take(10 * kMib);

  Pool hole(facts, "bare_or_hole", 0, true);
  first = hole.Take(32 * kMib);
  hole.Take(kMib);
  const CUdeviceptr second = hole.Take(62 * kMib);
  hole.Take(kMib);
  hole.Give(first);
  hole.Give(second);
  hole.Wait();
  hole.Trim(0);
  hole.Take(32 * kMib);
}

void Ceilings(Facts& facts) {
  Pool small(facts, "ceiling_8MiB", 8 * kMib, true);
  small.Take(8 * kMib);
  small.Take(24 * kMib);
  small.Take(kMib);

  Pool odd(facts, "ceiling_50MiB", 50 * kMib, true);
  odd.Take(70 * kMib);
  odd.Take(51 * kMib);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("memory_pool_places");
  UsePrimary(FirstDevice(facts));
  Placement(facts);
  Blocks(facts);
  LettingGo(facts);
  BareAddresses(facts);
  Ceilings(facts);
  return 0;
}
