// Words rather than amounts: policies, what is switched off, identity, folders.
#include <stdio.h>

#include "config/fault.h"
#include "config/reading.h"
#include "config/share.h"
#include "config/text.h"

namespace gpufence {
namespace {

void Copy(std::string_view text, char* to, size_t bytes) {
  snprintf(to, bytes, "%.*s", static_cast<int>(text.size()), text.data());
}

bool HasLimit(const Statements& statements, Dialect dialect) {
  for (size_t i = 0; i < statements.count; ++i) {
    const Option& option = *statements.all[i].option;
    if (option.dialect == dialect && option.setting < Setting::kHooks &&
        !statements.all[i].text.empty()) {
      return true;
    }
  }
  return false;
}

// "shared" is a soft share of everything, for all GPUs, so that one stated beside it holds.
bool ReadOwnPolicy(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  const Statement* policy = StatementOf(statements, Dialect::kGpufence, Setting::kCorePolicy);
  if (policy == nullptr || EqualsIgnoringCase(policy->text, "always")) return true;
  if (EqualsIgnoringCase(policy->text, "off")) {
    hidden->own_cores = true;
    return true;
  }
  if (!EqualsIgnoringCase(policy->text, "shared")) return Refuse(reading, *policy, Fault::kPolicy);
  Claim claim{};
  claim.kind = ClaimKind::kSoftCores;
  claim.dialect = static_cast<uint8_t>(Dialect::kGpufence);
  claim.layer = policy->origin == Origin::kConfigFile ? 1 : 0;
  claim.amount = 100 * kThousand;
  DescribeStatement(statements, *policy, claim.source);
  return AddClaim(reading, claim);
}

void ReadHamiPolicy(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  const std::string_view policy = TextOf(statements, Dialect::kHami, Setting::kCorePolicy);
  char quoted[kQuoteBytes];
  Quote(policy, quoted);
  hidden->hami_cores = EqualsIgnoringCase(policy, "disable");
  if (!hidden->hami_cores && !policy.empty() && !EqualsIgnoringCase(policy, "force") &&
      !EqualsIgnoringCase(policy, "default")) {
    AddNote(reading->claims, "GPU_CORE_UTILIZATION_POLICY=%s is unknown: the limit holds", quoted);
  }
}

}  // namespace

// Variables alone: what an operator wrote into a file still holds.
bool DropDisabled(Reading* reading) {
  Statements* statements = &reading->scratch->statements;
  const Statement* disable = StatementOf(*statements, Dialect::kGpufence, Setting::kDisable);
  if (disable == nullptr) return true;
  bool on = false;
  const Fault fault = ParseSwitch(disable->text, &on);
  if (fault != Fault::kNone) return Refuse(reading, *disable, fault);
  if (!on) return true;
  char source[kSourceBytes];
  DescribeStatement(*statements, *disable, source);
  size_t kept = 0;
  for (size_t i = 0; i < statements->count; ++i) {
    const Statement& statement = statements->all[i];
    const bool of_variable =
        statement.origin == Origin::kEnvironment || statement.origin == Origin::kFirstProcess;
    if (of_variable && statement.option->setting < Setting::kHooks) continue;
    statements->all[kept++] = statement;
  }
  if (kept < statements->count) {
    AddNote(reading->claims, "%s takes the limits of the variables away", source);
  }
  statements->count = kept;
  return true;
}

bool ReadSwitches(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  ReadHamiPolicy(reading, hidden);
  hidden->vgpu_rs = TextOf(statements, Dialect::kVgpuRs, Setting::kHooks) == "false";
  if (hidden->vgpu_rs && HasLimit(statements, Dialect::kVgpuRs)) {
    AddNote(reading->claims, "ENABLE_CUDA_HOOKS=false takes the limits of vgpu.rs away");
  }
  return ReadOwnPolicy(reading, hidden);
}

namespace {

constexpr size_t kFolderBytes = sizeof Claims::state_folder;

bool ReadFolder(Reading* reading, Setting setting, const char* name, char (&kept)[kFolderBytes]) {
  const std::string_view folder = TextOf(reading->statements(), Dialect::kGpufence, setting);
  if (!folder.empty() && (folder.front() != '/' || folder.size() >= kFolderBytes)) {
    return reading->complaint.Say("%s is no absolute path of at most %zu bytes. Write %s", name,
                                  kFolderBytes - 1, "/run/gpufence");
  }
  Copy(folder, kept, kFolderBytes);
  return true;
}

}  // namespace

bool ReadScope(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  const std::string_view scope = TextOf(statements, Dialect::kGpufence, Setting::kScope);
  claims->process_scope = scope == "process";
  if (!scope.empty() && !claims->process_scope && scope != "container") {
    char quoted[kQuoteBytes];
    Quote(scope, quoted);
    return reading->complaint.Say(
        "GPUFENCE_SCOPE='%s' is neither container nor process. Write one of them", quoted);
  }
  return ReadFolder(reading, Setting::kStateFolder, "GPUFENCE_STATE_DIR", claims->state_folder) &&
         ReadFolder(reading, Setting::kNodeFolder, "GPUFENCE_NODE_DIR", claims->node_folder);
}

void ReadIdentity(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  Copy(TextOf(statements, Dialect::kVcuda, Setting::kDeviceName), claims->device_name,
       sizeof claims->device_name);
  const std::string_view own = TextOf(statements, Dialect::kGpufence, Setting::kContainer);
  const std::string_view pod = TextOf(statements, Dialect::kVgpuManager, Setting::kPodUid);
  const std::string_view name = TextOf(statements, Dialect::kVgpuManager, Setting::kContainerName);
  const std::string_view id = TextOf(statements, Dialect::kAlnair, Setting::kId);
  if (!own.empty()) {
    Copy(own, claims->container, sizeof claims->container);
  } else if (!pod.empty() && !name.empty()) {
    snprintf(claims->container, sizeof claims->container, "%.*s_%.*s", static_cast<int>(pod.size()),
             pod.data(), static_cast<int>(name.size()), name.data());
  } else {
    Copy(id, claims->container, sizeof claims->container);
  }
}

void ReadGroup(Reading* reading) {
  Claims* claims = reading->claims;
  if (claims->container[0] != '\0') return;
  const std::string_view cache = TextOf(reading->statements(), Dialect::kHami, Setting::kContainer);
  // A long path differs from others at its end.
  constexpr size_t kMost = sizeof claims->container - 1;
  const size_t start = cache.size() > kMost ? cache.size() - kMost : 0;
  Copy(After(cache, start), claims->container, sizeof claims->container);
}

}  // namespace gpufence
