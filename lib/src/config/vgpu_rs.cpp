// What vgpu.rs says of limits: JSON objects in variables, device -> number; the file that its
// hypervisor shares with a pod, of which two limits of each GPU are taken, and tokens and heartbeat
// are not; and the hypervisor itself, asked as vgpu.rs's own limiter asks. GET /api/v1/pod with the
// pod's token makes it write that file, and its answer names the GPUs that the container may use,
// and its class of service. POST /api/v1/process makes a process known to it. Must not know how
// long the file will stay as it is.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "base/futex.h"
#include "config/claims.h"
#include "config/gpu_names.h"
#include "config/grammar.h"
#include "config/http.h"
#include "config/json.h"
#include "config/sources.h"
#include "config/text.h"

namespace gpufence {
namespace {

bool SameDevice(const Claim& one, const Claim& other) {
  if (one.kind != other.kind || one.dialect != other.dialect || one.target != other.target) {
    return false;
  }
  return one.target == ClaimTarget::kUuid ? memcmp(one.uuid, other.uuid, sizeof one.uuid) == 0
                                          : one.index == other.index;
}

// Target and amount of one member.
Fault ReadMember(std::string_view key, uint64_t number, Claim* claim) {
  if (ParseUuid(key, claim->uuid)) {
    claim->target = ClaimTarget::kUuid;
  } else if (ParseIndex(key, &claim->index)) {
    claim->target = ClaimTarget::kNvmlIndex;
  } else {
    return Fault::kDeviceKey;
  }
  claim->amount = number;
  if (claim->kind == ClaimKind::kCores) {
    if (number > 100) return Fault::kAboveHundred;
    claim->amount = number == 100 ? 0 : number * kThousand;
  }
  return Fault::kNone;
}

bool ReadMap(Reading* reading, const Statement& statement, ClaimKind kind) {
  JsonNumbers json(statement.text);
  Claims* claims = reading->claims;
  const size_t first = claims->count;
  std::string_view key;
  uint64_t number = 0;
  for (;;) {
    const JsonNumbers::Step step = json.Next(&key, &number);
    if (step == JsonNumbers::Step::kEnd) return true;
    if (step == JsonNumbers::Step::kBroken) return Refuse(reading, statement, Fault::kJson);
    if (step == JsonNumbers::Step::kTooLarge) return Refuse(reading, statement, Fault::kTooLarge);
    Claim claim{};
    claim.kind = kind;
    claim.dialect = static_cast<uint8_t>(Dialect::kVgpuRs);
    const Fault fault = ReadMember(key, number, &claim);
    if (fault != Fault::kNone) return Refuse(reading, statement, fault);
    for (size_t i = first; i < claims->count; ++i) {
      if (SameDevice(claims->claims[i], claim)) return Refuse(reading, statement, Fault::kTwice);
    }
    DescribeStatement(reading->statements(), statement, claim.source);
    if (!AddClaim(reading, claim)) return false;
  }
}

}  // namespace

bool ReadMaps(Reading* reading, const Hidden& hidden) {
  if (hidden.vgpu_rs) return true;
  const Statements& statements = reading->statements();
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    const Setting setting = statement.option->setting;
    if (setting != Setting::kMemoryMap && setting != Setting::kCoresMap) continue;
    if (statement.text.empty()) continue;
    const ClaimKind kind = setting == Setting::kMemoryMap ? ClaimKind::kMemory : ClaimKind::kCores;
    if (!ReadMap(reading, statement, kind)) return false;
  }
  return true;
}

namespace {

using Step = JsonMembers::Step;
using Kind = JsonMembers::Kind;

struct Request {
  const char* what;
  const char* headers;
  const char* refused;  // what a "success" of false says of the server
  uint64_t patience_ns;
};

constexpr const char* kTokenPath = "/var/run/secrets/kubernetes.io/serviceaccount/token";
// It looks for a process among all of the node's, for five seconds at most.
constexpr Request kPod = {"GET /api/v1/pod", "", "does not know this pod", 5'000'000'000};
constexpr Request kProcess = {"POST /api/v1/process", "Content-Length: 0\r\n",
                              "does not find this process", 10'000'000'000};
constexpr const char* kFix =
    "Start its node agent, or unset HYPERVISOR_IP and set limits in "
    "this container";

// The process that was made known; a forked child is another.
constinit std::atomic<int> known_process{0};

// What is gone by once it was answered.
struct Told {
  GpuChoice choice;
  char class_of_service[sizeof Reading::class_of_service];  // "": none
};

struct Answer {
  bool success;
  bool has_gpus;
  bool has_class;
  Told told;
};

// A process asks once, and its forked children go by what it was told: 0 not yet, 1 being written.
constinit std::atomic<int> kept_state{0};
constinit Told kept = {};

void Keep(const Told& told) {
  int nobody = 0;
  if (!kept_state.compare_exchange_strong(nobody, 1, std::memory_order_acquire)) return;
  kept = told;
  kept_state.store(2, std::memory_order_release);
}

bool ReadGpus(std::string_view* rest, Answer* answer) {
  JsonMembers items(Kind::kArray, rest);
  std::string_view text;
  for (;;) {
    const Step step = items.Next(&text);
    if (step != Step::kMember) return step == Step::kEnd;
    GpuChoice* choice = &answer->told.choice;
    if (!TakeJsonText(rest, &text) || choice->count == kMostLimitedDevices) return false;
    if (!ParseUuid(text, choice->uuids[choice->count++])) return false;
  }
}

// A word, or null where the pod has none.
bool ReadClass(std::string_view* rest, Answer* answer) {
  *rest = After(*rest, rest->find_first_not_of(" \t\r\n"));
  if (!StartsWith(*rest, "\"")) return SkipJsonValue(rest);
  std::string_view word;
  if (!TakeJsonText(rest, &word)) return false;
  char* to = answer->told.class_of_service;
  snprintf(to, sizeof answer->told.class_of_service, "%.*s", static_cast<int>(word.size()),
           word.data());
  return true;
}

bool ReadData(std::string_view* rest, Answer* answer) {
  if (!StartsWith(*rest, "{")) return SkipJsonValue(rest);  // null, where it has none
  JsonMembers members(Kind::kObject, rest);
  std::string_view key;
  for (;;) {
    const Step step = members.Next(&key);
    if (step != Step::kMember) return step == Step::kEnd;
    bool* seen = key == "gpu_uuids"   ? &answer->has_gpus
                 : key == "qos_level" ? &answer->has_class
                                      : nullptr;
    if (seen != nullptr && *seen) return false;
    if (seen != nullptr) *seen = true;
    const bool read = seen == &answer->has_gpus    ? ReadGpus(rest, answer)
                      : seen == &answer->has_class ? ReadClass(rest, answer)
                                                   : SkipJsonValue(rest);
    if (!read) return false;
  }
}

bool TakeSuccess(std::string_view* rest, Answer* answer) {
  const std::string_view before = *rest;
  if (!SkipJsonValue(rest)) return false;
  const std::string_view word = Trim(First(before, before.size() - rest->size()), " \t\r\n");
  answer->success = word == "true";
  return answer->success || word == "false";
}

bool ReadAnswer(std::string_view rest, Answer* answer) {
  JsonMembers members(Kind::kObject, &rest);
  std::string_view key;
  bool has_success = false;
  bool has_data = false;
  for (;;) {
    const Step step = members.Next(&key);
    if (step == Step::kEnd) return has_success && JsonEnds(rest);
    if (step != Step::kMember) return false;
    bool* seen = key == "success" ? &has_success : key == "data" ? &has_data : nullptr;
    if (seen != nullptr && *seen) return false;
    if (seen != nullptr) *seen = true;
    rest = After(rest, rest.find_first_not_of(" \t\r\n"));
    const bool read = seen == &has_success ? TakeSuccess(&rest, answer)
                      : seen == &has_data  ? ReadData(&rest, answer)
                                           : SkipJsonValue(&rest);
    if (!read) return false;
  }
}

bool IsToken(std::string_view text) {
  for (const char character : text) {
    if (character <= ' ' || character > '~') return false;
  }
  return !text.empty();
}

// As a part of a query: letters and digits stay, all else is %XX. False: it does not fit.
bool Escape(std::string_view text, char* to, size_t bytes) {
  size_t used = 0;
  for (const char character : text) {
    const char lower = Lower(character);
    const bool plain = IsDigit(character) || (lower >= 'a' && lower <= 'z') || character == '-' ||
                       character == '.' || character == '_';
    if (used + 4 > bytes) return false;
    if (plain) {
      to[used++] = character;
    } else {
      used += static_cast<size_t>(
          snprintf(to + used, 4, "%%%02X", static_cast<unsigned char>(character)));
    }
  }
  to[used] = '\0';
  return true;
}

struct Server {
  char address[kAddressBytes];
  uint16_t port;
};

std::string_view ContainerName(const Reading& reading) {
  return TextOf(reading.statements(), Dialect::kVgpuRs, Setting::kContainerName);
}

// Writes the request into the scratch; empty: it does not fit.
std::string_view WriteRequest(Reading* reading, const Server& server, const Request& request,
                              std::string_view token) {
  auto& buffer = reading->scratch->request;
  char name[3 * 128 + 1];
  if (!Escape(ContainerName(*reading), name, sizeof name)) return {};
  const bool six = strchr(server.address, ':') != nullptr;
  const int length = snprintf(
      buffer, sizeof buffer,
      "%s?container_pid=%d%s%s HTTP/1.1\r\nHost: %s%s%s:%u\r\n%s"
      "Authorization: Bearer %.*s\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
      request.what, getpid(), name[0] != '\0' ? "&container_name=" : "", name, six ? "[" : "",
      server.address, six ? "]" : "", unsigned{server.port}, request.headers,
      static_cast<int>(token.size()), token.data());
  if (length < 0 || static_cast<size_t>(length) >= sizeof buffer) return {};
  return {buffer, static_cast<size_t>(length)};
}

bool ReadToken(Reading* reading, std::string_view* token) {
  auto& buffer = reading->scratch->token_file;
  std::string_view text;
  bool is_operators = false;  // whoever wrote the token, the hypervisor judges it
  const FileResult result = ReadWholeFile(reading->sources->root, kTokenPath, buffer, sizeof buffer,
                                          &text, &is_operators);
  *token = Trim(text, " \t\r\n");
  if (result == FileResult::kRead && IsToken(*token)) return true;
  return reading->complaint.Say(
      "HYPERVISOR_IP is set, but %s holds no token for a request to it. Mount the pod's service "
      "account, or unset HYPERVISOR_IP",
      kTokenPath);
}

void GoBy(const Told& told, Reading* reading) {
  reading->claims->choice = told.choice;
  memcpy(reading->class_of_service, told.class_of_service, sizeof reading->class_of_service);
}

// False: the complaint says why there is no such answer.
bool AskFor(Reading* reading, const Server& server, const Request& request, Answer* answer) {
  std::string_view token;
  if (!ReadToken(reading, &token)) return false;
  const char* asked = reading->claims->hypervisor;
  const std::string_view text = WriteRequest(reading, server, request, token);
  if (text.empty()) {
    return reading->complaint.Say("CONTAINER_NAME is too long for a request to %s. Shorten it",
                                  asked);
  }
  auto& buffer = reading->scratch->answer;
  std::string_view body;
  const HttpQuestion question{server.address, server.port, text, NowNs() + request.patience_ns};
  const char* wrong = AskHttp(question, buffer, sizeof buffer, &body);
  if (wrong == nullptr && !ReadAnswer(body, answer))
    wrong = "sends an answer without the fields that gpufence reads";
  if (wrong == nullptr && !answer->success) wrong = request.refused;
  if (wrong == nullptr && &request == &kPod && !answer->has_gpus)
    wrong = "names no GPUs for this pod";
  if (wrong == nullptr) return true;
  return reading->complaint.Say("vgpu.rs's hypervisor at %s %s. %s", asked, wrong, kFix);
}

bool AskForPod(Reading* reading, const Server& server) {
  if (kept_state.load(std::memory_order_acquire) == 2) {
    GoBy(kept, reading);
    return true;
  }
  Answer answer{};
  if (!AskFor(reading, server, kPod, &answer)) return false;
  Keep(answer.told);
  GoBy(answer.told, reading);
  return true;
}

// Once the pod is known. By the container's name only: the request is none without, and vgpu.rs's
// limiter sends none.
bool TellOfProcess(Reading* reading, const Server& server) {
  const int own = getpid();
  if (ContainerName(*reading).empty()) return true;
  if (known_process.load(std::memory_order_relaxed) == own) return true;
  Answer answer{};
  if (!AskFor(reading, server, kProcess, &answer)) return false;
  known_process.store(own, std::memory_order_relaxed);
  return true;
}

// A number from 1 to 65535; 0: it is none.
uint16_t ReadPort(std::string_view text) {
  uint32_t number = 0;
  for (const char digit : text) {
    if (!IsDigit(digit) || number > UINT16_MAX) return 0;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  return number <= UINT16_MAX ? static_cast<uint16_t>(number) : uint16_t{0};
}

bool ReadHypervisor(Reading* reading) {
  const Statements& statements = reading->statements();
  const std::string_view address =
      TextOf(statements, Dialect::kVgpuRs, Setting::kHypervisorAddress);
  const std::string_view port = TextOf(statements, Dialect::kVgpuRs, Setting::kHypervisorPort);
  if (address.empty() || port.empty()) return true;
  char quoted[kQuoteBytes];
  Server server{};
  const bool fits = address.size() < sizeof server.address;
  if (fits) memcpy(server.address, address.data(), address.size());
  if (!fits || !IsAddress(server.address)) {
    Quote(address, quoted);
    return reading->complaint.Say(
        "HYPERVISOR_IP='%s' is not an IPv4 or IPv6 address. Write the node's, or unset it", quoted);
  }
  server.port = ReadPort(port);
  if (server.port == 0) {
    Quote(port, quoted);
    return reading->complaint.Say(
        "HYPERVISOR_PORT='%s' is not a port. Write 1 to 65535, or unset it", quoted);
  }
  snprintf(reading->claims->hypervisor, sizeof reading->claims->hypervisor, "%s port %u",
           server.address, unsigned{server.port});
  if (!reading->sources->asks) return true;
  return AskForPod(reading, server) && TellOfProcess(reading, server);
}

// Layout 2; little endian, as every machine we build for.
constexpr size_t kFileBytes = 35504;
constexpr uint32_t kLayoutTag = 1;
constexpr size_t kDevices = 16;
constexpr size_t kDevicesAt = 8;
constexpr size_t kDeviceBytes = 136;
constexpr size_t kUuidBytes = 64;
constexpr size_t kPercentAt = 64;
constexpr size_t kMemoryAt = 72;
constexpr size_t kActiveAt = 128;

template <typename Number>
Number NumberAt(const char* bytes) {
  Number number = 0;
  memcpy(&number, bytes, sizeof number);
  return number;
}

// Null, or what is wrong with the file, as a clause.
const char* ReadSharedDevice(const char* bytes, Claim* memory, Claim* cores) {
  const uint32_t percent = NumberAt<uint32_t>(bytes + kPercentAt);
  memory->amount = NumberAt<uint64_t>(bytes + kMemoryAt);
  if (!ParseUuid({bytes, strnlen(bytes, kUuidBytes)}, memory->uuid)) {
    return "has a GPU UUID that cannot be read";
  }
  if (memory->amount > uint64_t{INT64_MAX}) return "has a memory limit that is not a size";
  if (percent > 100) return "has a core limit that is not a percentage";
  memcpy(cores->uuid, memory->uuid, sizeof cores->uuid);
  cores->amount = percent == 100 ? 0 : percent * kThousand;
  return nullptr;
}

bool AddSharedDevice(Reading* reading, const char* bytes, size_t index, const char* path,
                     bool is_operators) {
  Claim memory{};
  memory.kind = ClaimKind::kMemory;
  memory.target = ClaimTarget::kUuid;
  memory.dialect = static_cast<uint8_t>(Dialect::kVgpuRs);
  memory.index = static_cast<uint32_t>(index);
  memory.is_ceiling = is_operators;
  snprintf(memory.source, sizeof memory.source, "GPU %zu in %s", index, path);
  Claim cores = memory;
  cores.kind = ClaimKind::kCores;
  const char* wrong = ReadSharedDevice(bytes, &memory, &cores);
  if (wrong != nullptr) {
    return reading->complaint.Say("%s %s. Let vgpu.rs's hypervisor write it again, or remove it",
                                  path, wrong);
  }
  return AddClaim(reading, memory) && AddClaim(reading, cores);
}

// Where the file is; false: the path is too long.
bool NamePath(const Statements& statements, char (&path)[192]) {
  const std::string_view file = TextOf(statements, Dialect::kVgpuRs, Setting::kSharedFile);
  std::string_view folder = TextOf(statements, Dialect::kVgpuRs, Setting::kSharedFolder);
  if (folder.empty()) folder = kSharedFolder;
  const std::string_view start = file.empty() ? folder : file;
  const int length = snprintf(path, sizeof path, "%.*s%s", static_cast<int>(start.size()),
                              start.data(), file.empty() ? "/shm" : "");
  return length > 0 && static_cast<size_t>(length) < sizeof path;
}

}  // namespace

bool ReadVgpuRsFile(Reading* reading, Hidden* hidden) {
  if (hidden->vgpu_rs) return true;
  char path[192];
  if (!NamePath(reading->statements(), path)) {
    return reading->complaint.Say("TF_SHM_FILE or SHM_PATH is too long. Name a shorter path");
  }
  // SHM_PATH is a name that others use as well: only a file there says that ours is meant.
  const bool named = !TextOf(reading->statements(), Dialect::kVgpuRs, Setting::kSharedFile).empty();
  if (!named && !ReadHypervisor(reading)) return false;
  auto& buffer = reading->scratch->vgpu_rs_file;
  std::string_view bytes;
  bool is_operators = false;
  const FileResult result =
      ReadWholeFile(reading->sources->root, path, buffer, sizeof buffer, &bytes, &is_operators);
  if (result == FileResult::kMissing && !named) {
    const char* asked = reading->claims->hypervisor;
    if (asked[0] == '\0' || !reading->sources->asks) return true;
    return reading->complaint.Say(
        "vgpu.rs's hypervisor at %s answers, but %s, where it writes limits, is not there. Mount "
        "its folder",
        asked, path);
  }
  if (result != FileResult::kRead || bytes.size() != kFileBytes ||
      NumberAt<uint32_t>(bytes.data()) != kLayoutTag) {
    return reading->complaint.Say(
        "%s is not what vgpu.rs's hypervisor shares (layout 2). Mount its file, or remove this one",
        path);
  }
  hidden->vgpu_rs = true;
  for (size_t i = 0; i < kDevices; ++i) {
    const char* device = bytes.data() + kDevicesAt + i * kDeviceBytes;
    if (NumberAt<uint32_t>(device + kActiveAt) != 1) continue;
    if (!AddSharedDevice(reading, device, i, path, is_operators)) return false;
  }
  return true;
}

}  // namespace gpufence
