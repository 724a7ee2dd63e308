// What applies of everything that is claimed, for people who have no GPU at hand: a row for each
// kind and each GPU that somebody names.
#include <string.h>

#include "answers/answers.h"
#include "config/choose.h"
#include "config/visible.h"

namespace gpufence {
namespace {

constexpr ClaimKind kKinds[] = {ClaimKind::kMemory, ClaimKind::kCores, ClaimKind::kSoftCores,
                                ClaimKind::kOversubscribe, ClaimKind::kSpill};

// The GPU that a claim names; nothing else is known of it.
DeviceIdentity DeviceOf(const Claim& claim) {
  DeviceIdentity device{};
  device.ordinal = claim.target == ClaimTarget::kOrdinal ? claim.index : kInvisible;
  device.nvml_index =
      claim.target == ClaimTarget::kNvmlIndex ? static_cast<int32_t>(claim.index) : -1;
  device.lacks_uuid = claim.target != ClaimTarget::kUuid;
  if (!device.lacks_uuid) memcpy(device.uuid, claim.uuid, sizeof device.uuid);
  return device;
}

// How the GPUs that two claims name are ordered; 0: it is the same one.
int Compare(const Claim& one, const Claim& other) {
  if (one.target != other.target) return one.target < other.target ? -1 : 1;
  if (one.target == ClaimTarget::kUuid) return memcmp(one.uuid, other.uuid, sizeof one.uuid);
  if (one.target == ClaimTarget::kEvery || one.index == other.index) return 0;
  return one.index < other.index ? -1 : 1;
}

bool HasKind(const Claims& claims, ClaimKind kind) {
  for (size_t i = 0; i < claims.count; ++i) {
    if (claims.claims[i].kind == kind) return true;
  }
  return false;
}

// A soft share depends on the hard one, which may be another GPU by GPU.
bool Names(const Claim& claim, ClaimKind kind) {
  return claim.kind == kind || (kind == ClaimKind::kSoftCores && claim.kind == ClaimKind::kCores);
}

// The claim whose GPU comes next behind that of `before` (null: the first); null: there is none.
const Claim* NextNamed(const Claims& claims, ClaimKind kind, const Claim* before) {
  const Claim* next = nullptr;
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (!Names(claim, kind) || (before != nullptr && Compare(claim, *before) <= 0)) continue;
    if (next == nullptr || Compare(claim, *next) < 0) next = &claim;
  }
  return next;
}

// Parts of a GPU and bytes cannot be compared without the GPU.
bool Depends(const ByDialect& said) {
  size_t named = 0;
  bool any_part = false;
  for (const Chosen& chosen : said.of) {
    if (chosen.claim == nullptr || chosen.claim->amount == 0) continue;
    ++named;
    any_part = any_part || chosen.claim->percent_of_device;
  }
  return named > 1 && any_part;
}

const Claim* Applies(const Claims& claims, ClaimKind kind, const DeviceIdentity& device,
                     const ByDialect& said) {
  Conflict ignored;
  if (kind != ClaimKind::kSoftCores) {
    return Depends(said) ? nullptr : LowestOf(said, &ignored).claim;
  }
  const ByDialect bounds = ChooseInDialects(claims, ClaimKind::kCores, device);
  const Chosen hard = LowestOf(bounds, &ignored);
  const Chosen rise = LowestOf(RiseOf(bounds, said), &ignored);
  return hard.claim != nullptr && rise.amount > hard.amount ? rise.claim : nullptr;
}

size_t IndexOf(const Claims& claims, const Claim* claim) {
  return static_cast<size_t>(claim - claims.claims);
}

void WriteRow(const Claims& claims, ClaimKind kind, const Claim& named, JsonText* json) {
  const DeviceIdentity device = DeviceOf(named);
  const ByDialect said = ChooseInDialects(claims, kind, device);
  const Claim* applies = Applies(claims, kind, device, said);
  json->Comma();
  json->Raw("[");
  json->Number(static_cast<uint64_t>(kind));
  json->Comma();
  json->Number(IndexOf(claims, &named));
  json->Comma();
  if (applies == nullptr) {
    json->Raw("null");
  } else {
    json->Number(IndexOf(claims, applies));
  }
  json->Comma();
  json->Bool(Depends(said));
  json->Raw(",[");
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind != kind || &claim == applies || !Concerns(claim, device)) continue;
    json->Comma();
    json->Number(i);
  }
  json->Raw("]]");
}

}  // namespace

void WriteRows(const Claims& claims, JsonText* json) {
  json->Raw("[");
  for (const ClaimKind kind : kKinds) {
    if (!HasKind(claims, kind)) continue;
    const Claim* named = NextNamed(claims, kind, nullptr);
    for (; named != nullptr; named = NextNamed(claims, kind, named)) {
      WriteRow(claims, kind, *named, json);
    }
  }
  json->Raw("]");
}

}  // namespace gpufence
