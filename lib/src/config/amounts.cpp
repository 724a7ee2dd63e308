// Amounts that stand in one text each: sizes, shares, ratios and switches of all dialects, with the
// rules in which the dialects differ as a table. Must not know files.
#include <string.h>

#include "config/claims.h"
#include "config/grammar.h"
#include "config/text.h"
#include "config/vgpu_manager.h"

namespace gpufence {
namespace {

// How a dialect means what all of them write alike.
struct Rules {
  bool zero_forbids_all;     // 0 bytes would let nothing be allocated: refused
  bool zero_key_falls_back;  // NAME_<i>=0 leaves the word to NAME
  bool empty_key_is_off;     // NAME_<i>= takes the limit away
  ClaimTarget index_means;
};

constexpr Rules kRules[kDialectCount] = {
    /* gpufence */ {false, false, false, ClaimTarget::kOrdinal},
    /* HAMi-core */ {false, true, false, ClaimTarget::kOrdinal},
    /* vgpu-manager */ {true, false, true, ClaimTarget::kUuid},
    /* vcuda-hook */ {false, false, false, ClaimTarget::kEvery},
    /* vgpu.rs */ {false, false, false, ClaimTarget::kEvery},
    /* Alnair */ {false, false, false, ClaimTarget::kEvery},
    /* NVIDIA */ {true, false, false, ClaimTarget::kEvery},
};

constexpr uint64_t kAllShares = 100 * kThousand;

Fault ParseShare(std::string_view text, const Option& option, uint64_t* amount) {
  const Fault fault = ParsePercent(text, amount);
  if (fault != Fault::kNone) return fault;
  if (option.dialect == Dialect::kAlnair && *amount == 0) return Fault::kBelowOne;
  if (option.setting == Setting::kCores && *amount == kAllShares) *amount = 0;
  return Fault::kNone;
}

Fault ParseBytes(std::string_view text, const Option& option, Claim* claim) {
  Size size{};
  const Fault fault = option.setting == Setting::kMemoryMegabytes
                          ? ParseMegabytes(text, &size.amount)
                          : ParseSize(text, &size);
  claim->amount = size.amount;
  claim->percent_of_device = size.percent_of_device;
  if (fault != Fault::kNone || size.amount > 0) return fault;
  return kRules[static_cast<size_t>(option.dialect)].zero_forbids_all ? Fault::kZero : Fault::kNone;
}

// Fills kind and amount. *wanted is false for a setting that is no amount.
Fault ParseAmount(const Statement& statement, Claim* claim, bool* wanted) {
  const std::string_view text = statement.text;
  const Option& option = *statement.option;
  *wanted = true;
  bool on = false;
  Fault fault = Fault::kNone;
  switch (option.setting) {
    case Setting::kMemory:
    case Setting::kMemoryMegabytes:
      claim->kind = ClaimKind::kMemory;
      return text.empty() ? Fault::kNone : ParseBytes(text, option, claim);
    case Setting::kCores:
    case Setting::kSoftCores:
      claim->kind = option.setting == Setting::kCores ? ClaimKind::kCores : ClaimKind::kSoftCores;
      return text.empty() ? Fault::kNone : ParseShare(text, option, &claim->amount);
    case Setting::kOversubscribe:
      claim->kind = ClaimKind::kOversubscribe;
      return text.empty() ? Fault::kNone : ParseOversubscribe(text, &claim->amount);
    case Setting::kRatio:
      claim->kind = ClaimKind::kOversubscribe;
      if (!text.empty()) fault = ParseRatio(text, &claim->amount);
      if (claim->amount <= kThousand) claim->amount = 0;  // no effect, as its authors have it
      return fault == Fault::kRoundsToZero ? Fault::kNone : fault;
    case Setting::kSpill:
      claim->kind = ClaimKind::kSpill;
      if (!text.empty()) fault = ParseSwitch(text, &on);
      claim->amount = on ? 1 : 0;
      return fault;
    default:
      *wanted = false;
      return Fault::kNone;
  }
}

bool IsHidden(const Statement& statement, const Hidden& hidden) {
  const Setting setting = statement.option->setting;
  switch (statement.option->dialect) {
    case Dialect::kGpufence:
      return hidden.own_cores && (setting == Setting::kCores || setting == Setting::kSoftCores);
    case Dialect::kHami:
      return hidden.hami_cores && setting == Setting::kCores;
    case Dialect::kVgpuManager:
      return hidden.vgpu_manager;
    case Dialect::kVcuda:
      return hidden.vcuda_memory && setting == Setting::kMemory;
    case Dialect::kVgpuRs:
      return hidden.vgpu_rs;
    case Dialect::kAlnair:
      return hidden.alnair;
    case Dialect::kNvidia:
      return false;
  }
  return false;
}

bool ReadAmount(Reading* reading, const Statement& statement, const HostDevices& host,
                const Hidden& hidden) {
  const Rules& rules = kRules[static_cast<size_t>(statement.option->dialect)];
  const bool has_key = statement.target != ClaimTarget::kEvery;
  Claim claim{};
  bool wanted = false;
  const Fault fault = ParseAmount(statement, &claim, &wanted);
  if (!wanted || IsHidden(statement, hidden)) return true;
  if (statement.text.empty() && !(has_key && rules.empty_key_is_off)) return true;
  if (fault != Fault::kNone) return Refuse(reading, statement, fault);
  if (has_key && claim.amount == 0 && rules.zero_key_falls_back) return true;

  claim.target = statement.target;
  claim.index = statement.index;
  memcpy(claim.uuid, statement.uuid, sizeof claim.uuid);
  if (claim.target == ClaimTarget::kOrdinal && rules.index_means == ClaimTarget::kUuid) {
    host.Locate(statement.index, &claim);
  }
  claim.dialect = static_cast<uint8_t>(statement.option->dialect);
  claim.layer = statement.origin == Origin::kConfigFile ? 1 : 0;
  claim.is_ceiling = statement.is_operators;
  DescribeStatement(reading->statements(), statement, claim.source);
  return AddClaim(reading, claim);
}

}  // namespace

bool ReadAmounts(Reading* reading, const Hidden& hidden) {
  HostDevices host;
  if (!hidden.vgpu_manager && !host.Read(reading)) return false;
  const Statements& statements = reading->statements();
  for (size_t i = 0; i < statements.count; ++i) {
    if (!ReadAmount(reading, statements.all[i], host, hidden)) return false;
  }
  return true;
}

}  // namespace gpufence
