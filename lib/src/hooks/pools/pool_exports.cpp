#include "hooks/pools/pool_exports.h"

#include <fcntl.h>
#include <unistd.h>

#include "hooks/fence.h"
#include "hooks/memory/piece_reservation.h"
#include "hooks/sharing/shared_memory.h"
#include "policy/charge.h"
#include "real.h"
#include "state/exported.h"

namespace gpufence {
namespace {

// A block's holding counts its living exported pieces, and one for itself.
constexpr uint32_t kItself = 1;

PoolAccount* PoolOf(const Holding& piece) { return reinterpret_cast<PoolAccount*>(piece.owner); }

template <typename Use>
void ForEachBlock(const Holding& piece, Use use) {
  const uint64_t end = piece.key + piece.bytes;
  for (uint64_t block = piece.key & ~(kPoolBlockBytes - 1); block < end; block += kPoolBlockBytes) {
    use(block);
  }
}

// What a pointer's export changed.
struct Change {
  uint64_t fresh_bytes;     // blocks at addresses of which the file had none
  uint64_t replaced_bytes;  // lost blocks that others took the place of
};

// Lock held. Puts a piece's blocks into the file.
Change Enter(Fence* fence, PoolExports* exports, const Holding& piece) {
  Change change = {};
  ForEachBlock(piece, [&](uint64_t block) {
    Holding known;
    const int64_t count =
        fence->holdings.AddReference(HoldingKind::kExportedBlock, block, 1, &known);
    if (count < 0) {
      fence->holdings.Put({.key = block,
                           .owner = piece.owner,
                           .count = kItself + 1,
                           .device = piece.device,
                           .kind = HoldingKind::kExportedBlock});
      change.fresh_bytes += kPoolBlockBytes;
    } else if (count == kItself + 1) {
      exports->idle_bytes -= kPoolBlockBytes;
    }
  });
  exports->bytes += change.fresh_bytes;
  if (exports->lost_bytes > exports->idle_bytes) {
    change.replaced_bytes = exports->lost_bytes - exports->idle_bytes;
    exports->lost_bytes = exports->idle_bytes;
  }
  return change;
}

// Every descriptor of a pool is one of the same open file.
int OpenFileOf(const PoolAccount* account) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  int fd = kNoDescriptor;
  if (real::cuMemPoolExportToShareableHandle(&fd, reinterpret_cast<CUmemoryPool>(handle),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0) != CUDA_SUCCESS) {
    return kNoDescriptor;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

void Export(Fence* fence, const Holding& piece) {
  PoolAccount* account = PoolOf(piece);
  FencedDevice* payer = &fence->devices[piece.device];
  Change change = {};
  uint64_t bytes = 0;
  {
    SpinGuard guard(&account->lock);
    Holding mark;
    // Exported again, it is in the same blocks.
    if (fence->holdings.Get(HoldingKind::kExportedPointer, piece.key, &mark)) return;
    fence->any_exported.store(true, std::memory_order_relaxed);
    mark = {.key = piece.key, .device = piece.device, .kind = HoldingKind::kExportedPointer};
    fence->holdings.Put(mark);
    change = Enter(fence, &account->exports, piece);
    bytes = account->exports.bytes;
  }
  if (change.replaced_bytes != 0) {
    payer->unlisted_bytes.fetch_sub(change.replaced_bytes);
    payer->account.Release(change.replaced_bytes, account->tier);
  }
  if (change.fresh_bytes == 0) return;
  payer->account.sharing().Exported(change.fresh_bytes, /*by_descriptor=*/true);
  const int fd = OpenFileOf(account);
  LockDescriptor(fence, payer->account, fd, bytes, &account->exports.place);
  if (fd != kNoDescriptor) close(fd);
}

}  // namespace

bool BeginFreeOfExported(Fence* fence, Holding piece) {
  // What a dma-buf holds of it is counted by that from here on, be it still the pool's for a while.
  EndExported(fence, piece);
  PoolExports* exports = &PoolOf(piece)->exports;
  SpinGuard guard(&PoolOf(piece)->lock);
  Holding mark;
  if (!fence->holdings.Take(HoldingKind::kExportedPointer, piece.key, &mark)) return false;
  ForEachBlock(piece, [&](uint64_t block) {
    Holding known;
    if (fence->holdings.AddReference(HoldingKind::kExportedBlock, block, -1, &known) == kItself) {
      exports->idle_bytes += kPoolBlockBytes;
    }
  });
  return true;
}

void Unfreed(Fence* fence, Holding piece) { Export(fence, piece); }

uint64_t EndPoolExports(Fence* fence, FencedDevice* payer, PoolAccount* account,
                        uint64_t charged_bytes) {
  account->lock.Lock();
  const PoolExports exports = account->exports;
  account->exports = {};
  account->lock.Unlock();
  if (exports.bytes == 0) return charged_bytes;
  const auto owner = reinterpret_cast<uint64_t>(account);
  fence->holdings.TakeWhere(
      [owner](const Holding& holding) {
        return holding.kind == HoldingKind::kExportedBlock && holding.owner == owner;
      },
      [](const Holding&) {});
  payer->unlisted_bytes.fetch_sub(exports.lost_bytes);
  const uint64_t all_bytes = charged_bytes + exports.lost_bytes;
  if (EndLocked(payer, exports.place, exports.bytes)) return all_bytes;
  return all_bytes > exports.bytes ? all_bytes - exports.bytes : 0;
}

}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  const Hook hook;
  const CUresult rc = real::cuMemPoolExportPointer(shareData_out, ptr);
  Holding piece;
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr && GetAddress(hook.fence(), ptr, &piece) &&
      piece.family == Family::kStreamOrdered) {
    Export(hook.fence(), piece);
  }
  return rc;
}

}  // extern "C"
