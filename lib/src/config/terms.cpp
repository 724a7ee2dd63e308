// How a core limit is held beside its shares. A statement of ours holds for all GPUs; of several
// systems that name a priority the lowest one holds, so that none lifts what another one lowered.
#include <stdio.h>

#include <algorithm>

#include "config/claims.h"
#include "config/grammar.h"

namespace gpufence {
namespace {

// Takes the priorities that the systems name, and keeps the lowest.
class Priorities {
 public:
  explicit Priorities(Claims* claims) : claims_(claims) {}

  void Add(CorePriority priority, const char* source, bool is_operators) {
    CoreTerms* ceiling = &claims_->terms_ceiling;
    if (is_operators && RankOf(priority) < RankOf(ceiling->priority)) ceiling->priority = priority;
    CorePriority* held = &claims_->terms.priority;
    char* source_held = claims_->priority_source;
    const bool is_lower = source_held[0] == '\0' || RankOf(priority) < RankOf(*held);
    if (source_held[0] != '\0' && priority != *held) {
      AddNote(claims_, "%s applies, because it is lower than %s", is_lower ? source : source_held,
              is_lower ? source_held : source);
    }
    if (!is_lower) return;
    *held = priority;
    snprintf(source_held, kSourceBytes, "%s", source);
  }

 private:
  Claims* claims_;
};

bool ReadPriority(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  Priorities named(claims);
  CorePriority priority{};
  char source[kSourceBytes];
  const Statement* own = StatementOf(statements, Dialect::kGpufence, Setting::kPriority);
  if (own != nullptr) {
    const Fault fault = ParsePriority(own->text, &priority);
    if (fault != Fault::kNone) return Refuse(reading, *own, fault);
    DescribeStatement(statements, *own, source);
    named.Add(priority, source, own->is_operators);
  }
  const Statement* task = StatementOf(statements, Dialect::kHami, Setting::kPriority);
  if (task != nullptr) {
    DescribeStatement(statements, *task, source);
    if (ParseTaskPriority(task->text, &priority)) {
      named.Add(priority, source, task->is_operators);
    } else {
      AddNote(claims, "%s has no effect: it is not a priority", source);
    }
  }
  const char* service = reading->class_of_service;
  if (service[0] == '\0') return true;
  snprintf(source, sizeof source, "qos_level '%.31s' of vgpu.rs's hypervisor", service);
  if (ParseServiceClass(service, &priority)) {
    named.Add(priority, source, /*is_operators=*/true);
  } else {
    AddNote(claims, "%s has no effect: it is unknown", source);
  }
  return true;
}

// One amount of ours. `kept` and `ceiling` are told apart by who wrote it.
template <typename Amount>
bool ReadOwn(Reading* reading, Setting setting, Fault (*parse)(std::string_view, Amount*),
             Amount least, Amount* kept, Amount* ceiling) {
  const Statement* own = StatementOf(reading->statements(), Dialect::kGpufence, setting);
  if (own == nullptr) return true;
  const Fault fault = parse(own->text, kept);
  if (fault != Fault::kNone) return Refuse(reading, *own, fault);
  *kept = std::max(*kept, least);
  if (own->is_operators) *ceiling = *kept;
  return true;
}

bool LimitsAnyCores(const Claims& claims) {
  for (size_t i = 0; i < claims.count; ++i) {
    if (claims.claims[i].kind == ClaimKind::kCores && claims.claims[i].amount > 0) return true;
  }
  return false;
}

void NoteWithoutLimit(Reading* reading) {
  if (LimitsAnyCores(*reading->claims)) return;
  const Statements& statements = reading->statements();
  for (const Setting setting :
       {Setting::kPriority, Setting::kWeight, Setting::kCoreBurst, Setting::kCoreFloor}) {
    const Statement* own = StatementOf(statements, Dialect::kGpufence, setting);
    if (own == nullptr) continue;
    char source[kSourceBytes];
    DescribeStatement(statements, *own, source);
    AddNote(reading->claims, "%s has no effect without a core limit", source);
    return;
  }
}

}  // namespace

bool ReadTerms(Reading* reading) {
  CoreTerms* terms = &reading->claims->terms;
  CoreTerms* ceiling = &reading->claims->terms_ceiling;
  if (!ReadPriority(reading) ||
      !ReadOwn(reading, Setting::kWeight, ParseWeight, uint32_t{1}, &terms->weight,
               &ceiling->weight) ||
      !ReadOwn(reading, Setting::kCoreBurst, ParseBurst, kNoBurstNs, &terms->burst_ns,
               &ceiling->burst_ns) ||
      !ReadOwn(reading, Setting::kCoreFloor, ParseFloor, kNoFloor, &terms->floor,
               &ceiling->floor)) {
    return false;
  }
  NoteWithoutLimit(reading);
  return true;
}

}  // namespace gpufence
